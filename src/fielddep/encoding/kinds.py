"""Kinds: what a column holds, inferred from dtype, values, name and target.

Whole numbers are the hard case: in the tables this library is made for, many are codes (a user, a flight), some are
amounts (a duration), and some are both (an age). How they are written and spread decides, and where that leaves it
open, the targets of training rows: whether neighbouring numbers have alike targets, and whether bins of numbers or
single values predict rows that they were not learned from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from fielddep.config.data import Kind
from fielddep.encoding.dates import find_format, is_date_type
from fielddep.encoding.lists import list_separator, looks_like_text
from fielddep.encoding.measures import ValueTargets, order_matters
from fielddep.encoding.values import as_whole_numbers, distinct_values, is_list, try_numbers

# fmt: off
_ID_WORDS = frozenset((
    "id", "ids", "uid", "uuid", "guid", "code", "codes", "key", "keys", "zip", "zipcode", "postcode", "postal", "index",
    "idx", "user", "users", "item", "items", "customer", "client", "account", "product", "sku", "ean", "isbn", "hash",
    "phone",
))
_ID_ENDINGS = frozenset((
    "no", "nr", "nbr", "num", "number", "category", "cat", "type", "class", "group", "label", "flag",
))
"""Words that mean an id at the end of a name only: `flight_number` is a code, `number_of_visits` a count."""
_ID_OWNERS = frozenset((
    "user", "item", "customer", "client", "product", "movie", "device", "session", "ad", "site", "app", "page",
))
# fmt: on
_MANY_NEGATIVE = 64
_MANY_DENSE = 30
_TOO_MANY_DENSE = 10_000
"""No amount takes every whole number of such a long range; numbered users, movies or tags do."""
_ROWS_PER_VALUE = 30
_MIN_ORDERED = 3


@dataclass(frozen=True)
class KindChoice:
    """The kind of a column, and why, in one word."""

    kind: Kind
    reason: str


def infer_kind(
    column: pl.Series, missing_values: Iterable[str] = ("",), counted: pl.DataFrame | None = None
) -> KindChoice:
    """The kind of a column; a categorical dtype is always categorical, a list always a list.

    Text is a date if one format fits all of it, a list if its separator is clear, and free text if cells are long and
    nearly all different. It counts as numbers if every text is a number without a leading
    zero, as in postcodes. Numbers with fractions are numerical; whole numbers may be either (`_kind_of_whole`).

    Args:
        column: the raw column.
        missing_values: texts that mean missing.
        counted: `distinct_values` of the column, if the caller has them already; with the columns of `ValueTargets`,
            the target has its say.
    """
    if isinstance(column.dtype, (pl.Categorical, pl.Enum)):
        return KindChoice("categorical", "typed")
    if is_date_type(column.dtype):
        return KindChoice("date", "typed")
    if is_list(column.dtype):
        return KindChoice("list", "typed")
    if column.dtype == pl.Boolean:
        return KindChoice("categorical", "boolean")
    counted = distinct_values(column) if counted is None else counted
    values = counted["value"].alias(column.name)
    numbers = try_numbers(values, missing_values)
    if numbers is None:
        return _kind_of_text(values, counted, missing_values)
    if numbers.null_count() == len(numbers):
        return KindChoice("categorical", "empty")
    if _has_leading_zero(values):
        return KindChoice("categorical", "zeros")
    if not (numbers.drop_nulls() % 1 == 0).all():
        return KindChoice("numerical", "fractions")
    whole = as_whole_numbers(values, missing_values)
    return KindChoice("categorical", "text") if whole is None else _kind_of_whole(values, whole, counted)


def _kind_of_text(values: pl.Series, counted: pl.DataFrame, missing_values: Iterable[str]) -> KindChoice:
    if find_format(values, missing_values) is not None:
        return KindChoice("date", "format")
    separator = list_separator(counted, missing_values)
    if separator is not None and separator[1]:
        return KindChoice("list", "separator")
    if looks_like_text(counted, missing_values):
        return KindChoice("text", "words")
    return KindChoice("categorical", "text")


def _kind_of_whole(values: pl.Series, whole: pl.Series, counted: pl.DataFrame) -> KindChoice:
    known = whole.is_not_null()
    n_known, n_distinct = int(counted["n"].filter(known).sum()), whole.drop_nulls().n_unique()
    if is_spread(whole, n_known):
        return KindChoice("numerical", "spread")
    if is_id_name(whole.name):
        return KindChoice("categorical", "name")
    if n_distinct < _MIN_ORDERED:
        return KindChoice("categorical", "few")
    few_rows = n_known < _ROWS_PER_VALUE * n_distinct
    # A gap turns whole numbers of pandas into floats, so only those without a gap, or with many values, are amounts.
    if _written_as_float(values) and (few_rows or known.all()):
        return KindChoice("numerical" if few_rows else "both", "floats")
    targets = ValueTargets.of(counted.filter(known), whole.drop_nulls().cast(pl.Float64).to_numpy())
    is_amount = few_rows and is_dense(whole)
    if targets is None:
        return KindChoice("numerical", "dense") if is_amount else KindChoice("categorical", "whole")
    ordered = order_matters(targets)
    # Few rows of a code say more about it than its neighbours do; of an amount, the neighbours say more.
    if few_rows and (ordered or is_amount) and targets.bins_are_better():
        return KindChoice("numerical", "ordered" if ordered else "dense")
    return KindChoice("both", "ordered") if ordered else KindChoice("categorical", "unordered")


def may_be_ordered(choice: KindChoice) -> bool:
    """Whether targets could change the kind of a column that was chosen without them."""
    return choice.reason in ("whole", "dense")


def _written_as_float(values: pl.Series) -> bool:
    if values.dtype == pl.String:
        return bool(values.drop_nulls().str.contains(r"\.").all())
    return values.dtype.is_float()


def is_spread(whole: pl.Series, n_rows: int) -> bool:
    """Whether whole numbers cannot be codes: many with negative ones, or one of its own in most of `n_rows` rows.

    The latter does not apply to a column named like an id.
    """
    known = whole.drop_nulls()
    n_distinct = known.n_unique()
    if n_distinct > _MANY_NEGATIVE and int(known.min()) < 0:  # type: ignore[arg-type]  # integers
        return True
    return n_distinct > n_rows / 2 and not is_id_name(whole.name)


def is_dense(whole: pl.Series) -> bool:
    """Whether whole numbers fill a range of moderate length densely, as amounts do, and numbered codes."""
    known = whole.drop_nulls()
    n_distinct, low, high = known.n_unique(), int(known.min()), int(known.max())  # type: ignore[arg-type]  # integers
    return high - low + 1 <= 2 * n_distinct and _MANY_DENSE < n_distinct <= _TOO_MANY_DENSE


def is_row_number(column: pl.Series, missing_values: Iterable[str] = ("",)) -> bool:
    """Whether every row has a whole number of its own from one dense range, like an order number.

    Up to half of the range may be absent, because training rows hold only a part of it.
    """
    whole = as_whole_numbers(column, missing_values)
    if whole is None or whole.has_nulls() or whole.n_unique() < len(whole) or not len(whole):
        return False
    return int(whole.max()) - int(whole.min()) + 1 <= 2 * len(whole)  # type: ignore[arg-type]  # integers


def is_id_name(name: str) -> bool:
    """Whether a word in the name suggests ids or codes.

    Example:
        >>> is_id_name("userId"), is_id_name("flight number"), is_id_name("number of visits"), is_id_name("humidity")
        (True, True, False, False)
    """
    split_camel = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = [word.lower() for word in re.findall(r"[A-Za-z]+", split_camel)]
    if words and words[-1] in _ID_ENDINGS:
        return True
    return any(w in _ID_WORDS or (w.endswith("id") and w[:-2] in _ID_OWNERS) for w in words)


def _has_leading_zero(column: pl.Series) -> bool:
    return column.dtype == pl.String and bool(column.str.contains(r"^\s*-?0\d").any())

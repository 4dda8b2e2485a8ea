"""Kinds: is a column a category or a measure?

Whole numbers are the hard case. In the tables this library is made for they are mostly codes (a user, an hour,
a flight), so they are categories unless they look like a measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

from fielddep.config import Kind
from fielddep.data.values import as_whole_numbers, distinct_values, try_numbers

# fmt: off
_ID_WORDS = frozenset((
    "id", "ids", "uid", "uuid", "guid", "code", "codes", "key", "keys", "zip", "zipcode", "postcode", "postal", "index",
    "idx", "user", "users", "item", "items", "customer", "client", "account", "product", "sku", "ean", "isbn", "hash",
    "phone",
))
_ID_ENDINGS = frozenset((
    "no", "nr", "nbr", "num", "number", "category", "cat", "type", "class", "group", "label", "flag",
))
"""Words that say id at the end of a name only: `flight_number` is a code, `number_of_visits` a count."""
_ID_OWNERS = frozenset((
    "user", "item", "customer", "client", "product", "movie", "device", "session", "ad", "site", "app", "page",
))
# fmt: on
_MANY_NEGATIVE = 64
_MANY_DENSE = 30
_TOO_MANY_DENSE = 10_000
"""No amount takes every whole number of so long a range; numbered users, movies or tags do."""
_ROWS_A_VALUE = 30


def infer_kind(column: pl.Series, missing_values: Iterable[str] = ("",), counted: pl.DataFrame | None = None) -> Kind:
    """Categorical or numerical, judged by dtype, values and name; a categorical dtype is taken at its word.

    Text is judged as numbers when every text in it is a number and none has a leading zero (postcodes have).
    Numbers with fractions are numerical; whole numbers are judged by `looks_like_measure`.

    Args:
        column: the raw column.
        missing_values: texts that mean missing.
        counted: `distinct_values` of the column, where the caller has them already.
    """
    if isinstance(column.dtype, (pl.Categorical, pl.Enum)):
        return "categorical"
    counted = distinct_values(column) if counted is None else counted
    values = counted["value"].alias(column.name)
    numbers = None if column.dtype == pl.Boolean else try_numbers(values, missing_values)
    if numbers is None or numbers.null_count() == len(numbers) or _has_leading_zero(values):
        return "categorical"
    if not (numbers.drop_nulls() % 1 == 0).all():
        return "numerical"
    whole = as_whole_numbers(values, missing_values)
    n_known = int(counted["n"].filter(numbers.is_not_null()).sum())
    return "numerical" if whole is not None and looks_like_measure(whole, n_known) else "categorical"


def looks_like_measure(whole: pl.Series, n_rows: int) -> bool:
    """Whether whole numbers, given once each, that `n_rows` rows hold are an amount rather than a code.

    They are when there are many with negatives among them; when most rows have a number of their own; or when
    they fill a range of moderate length densely with few rows each. The last two do not count for a column named like
    an id.
    """
    known = whole.drop_nulls()
    n_distinct, low, high = known.n_unique(), int(known.min()), int(known.max())  # type: ignore[arg-type]  # integers
    if n_distinct > _MANY_NEGATIVE and low < 0:
        return True
    if is_id_name(whole.name):
        return False
    dense = high - low + 1 <= 2 * n_distinct
    moderate = _MANY_DENSE < n_distinct <= _TOO_MANY_DENSE
    return n_distinct > n_rows / 2 or (dense and moderate and n_rows < _ROWS_A_VALUE * n_distinct)


def numbers_the_rows(column: pl.Series, missing_values: Iterable[str] = ("",)) -> bool:
    """Whether a column gives every row a whole number of its own from one dense range, as an order number does.

    Training rows hold only a part of such a range, so up to half of it may be absent.
    """
    whole = as_whole_numbers(column, missing_values)
    if whole is None or whole.has_nulls() or whole.n_unique() < len(whole) or not len(whole):
        return False
    return int(whole.max()) - int(whole.min()) + 1 <= 2 * len(whole)  # type: ignore[arg-type]  # integers


def is_id_name(name: str) -> bool:
    """Whether a word of the name says that the column holds ids or codes.

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

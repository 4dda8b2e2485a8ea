"""Schema: the fields of a table, their kinds, and the target. All of it is inferred and can be overridden.

A field is categorical or numerical. Whole numbers are the hard case: in the tables this library is made for, most are
codes (a user, an hour, a flight), so they are categorical unless they look like a measure.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from fielddep.config.settings import PER_FIELD_DEFAULT, Config, DataConfig, Kind, Numeric, for_field
from fielddep.encoding.split import split_column
from fielddep.encoding.target import Target
from fielddep.encoding.values import as_whole_numbers, canonical, distinct_values, try_numbers
from fielddep.errors import SchemaError
from fielddep.wording import did_you_mean

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
_MIN_ROWS_UNIQUE = 20

log = logging.getLogger(__name__)


def infer_kind(column: pl.Series, missing_values: Iterable[str] = ("",), counted: pl.DataFrame | None = None) -> Kind:
    """Categorical or numerical, by dtype, values and name; a categorical dtype is always categorical.

    Text counts as numbers if every text is a number without a leading zero, as in postcodes. Numbers with fractions are
    numerical; for whole numbers, `looks_like_measure` decides.

    Args:
        column: the raw column.
        missing_values: texts that mean missing.
        counted: `distinct_values` of the column, if the caller has them already.
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
    """Whether different whole numbers from `n_rows` rows are amounts rather than codes.

    They are if there are many and some are negative, if most rows have a number of their own, or if they fill a range
    of moderate length densely with few rows each. The last two do not apply to a column named like an id.
    """
    known = whole.drop_nulls()
    n_distinct, low, high = known.n_unique(), int(known.min()), int(known.max())  # type: ignore[arg-type]  # integers
    if n_distinct > _MANY_NEGATIVE and low < 0:
        return True
    if is_id_name(whole.name):
        return False
    dense = high - low + 1 <= 2 * n_distinct
    moderate = _MANY_DENSE < n_distinct <= _TOO_MANY_DENSE
    return n_distinct > n_rows / 2 or (dense and moderate and n_rows < _ROWS_PER_VALUE * n_distinct)


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


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column that a model sees.

    Attributes:
        name: its column.
        kind: categorical or numerical.
        numeric: how a numerical field enters the model; None for a categorical one.
    """

    name: str
    kind: Kind
    numeric: Numeric | None = None


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The roles of the columns of a table.

    Attributes:
        fields: columns that a model sees, in its order.
        target: column to predict; None for a table without one.
        weight: column of sample weights.
        split_column: column that decided the split.
        skipped: columns that are useless to a model, each with the reason.
    """

    fields: tuple[Field, ...]
    target: Target | None = None
    weight: str | None = None
    split_column: str | None = None
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in self.fields)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write and `from_json` reads back to an equal schema."""
        return {
            "fields": [dict(vars(field)) for field in self.fields],
            "target": None if self.target is None else self.target.to_json(),
            "weight": self.weight,
            "split_column": self.split_column,
            "left_out": [list(pair) for pair in self.skipped],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Schema:
        """Read what `to_json` wrote."""
        target = values["target"]
        return cls(
            fields=tuple(Field(**field) for field in values["fields"]),
            target=None if target is None else Target.from_json(target),
            weight=values["weight"],
            split_column=values["split_column"],
            skipped=tuple((name, reason) for name, reason in values["left_out"]),
        )


def target_name(columns: Sequence[str], config: Config) -> str:
    """The column of the target; a SchemaError if the settings name none."""
    if config.data.target is None:
        raise SchemaError(f"a target is needed; set data.target (--target) to one of {', '.join(columns)}")
    return config.data.target


def build_schema(planned: Mapping[str, Field | str], target: Target, config: Config) -> Schema:
    """The schema of planned columns, with a warning for each skipped one.

    Raises:
        SchemaError: for fewer than two fields.
    """
    skipped = tuple((name, reason) for name, reason in planned.items() if isinstance(reason, str))
    fields = tuple(field for field in planned.values() if isinstance(field, Field))
    _check_enough(fields, skipped)
    for name, reason in skipped:
        log.warning("field %r is left out: %s; name its kind in data.kinds to keep it", name, reason)
    weight, split_column = config.data.weight, config.split.column
    return Schema(fields=fields, target=target, weight=weight, split_column=split_column, skipped=skipped)


def check_column_names(columns: Sequence[str], config: Config) -> None:
    """Refuse settings that name a column the table does not have."""
    data = config.data
    for setting, names in (
        ("data.target", [data.target] if data.target else []),
        ("data.weight", [data.weight] if data.weight else []),
        ("data.fields", data.fields or ()),
        ("data.exclude", data.exclude),
        ("data.kinds", data.kinds),
        ("data.numeric", _named(data.numeric)),
        ("data.min_count", _named(data.min_count)),
    ):
        for name in names:
            if name not in columns:
                raise SchemaError(f"{setting} names {name!r}, which is not a column; {did_you_mean(name, columns)}")
    for reserved in (data.target, data.weight):
        if reserved is not None and reserved in (data.fields or ()):
            raise SchemaError(f"data.fields must not name {reserved!r}, the target or weight; remove it there")
    if data.target is not None or config.split.column is not None:  # a table can be described without either
        split_column(columns, config.split, data.target)


def plan_fields(table: pl.DataFrame, config: Config) -> dict[str, Field | str]:
    """For each column that may be a field: the field, or why it is useless."""
    names = candidate_names(table.columns, config)
    return {name: plan_field(name, distinct_values(table[name]), config.data) for name in names}


def candidate_names(columns: Sequence[str], config: Config) -> list[str]:
    """Columns that may be fields."""
    data = config.data
    if data.fields is None:
        names = [name for name in columns if name not in {data.target, data.weight, config.split.column}]
    else:
        names = list(dict.fromkeys(data.fields))
    return [name for name in names if name not in data.exclude]


def plan_field(name: str, counted: pl.DataFrame, data: DataConfig) -> Field | str:
    """The field of a column, or why it is useless; `counted` is `distinct_values` of the column."""
    kind = data.kinds.get(name) or infer_kind(counted["value"].alias(name), data.missing_values, counted)
    if may_skip(name, data):
        reason = skip_reason(counted.with_columns(value=canonical(counted["value"], data.missing_values)), kind)
        if reason:
            return reason
    return make_field(name, kind, data)


def make_field(name: str, kind: Kind, data: DataConfig) -> Field:
    """A field of a known kind, with the settings of the column."""
    default: Numeric = "quantile"
    numeric = for_field(data.numeric, name, default) if kind == "numerical" else None
    return Field(name=name, kind=kind, numeric=numeric)


def may_skip(name: str, data: DataConfig) -> bool:
    """Whether a useless column may be skipped: not if the settings name it as a field."""
    return name not in (data.fields or ()) and name not in data.kinds


def skip_reason(counted: pl.DataFrame, kind: Kind) -> str | None:
    """Why a field of canonical values (value) with the rows of each (n) is useless; None if it is not."""
    n_rows, n_distinct = int(counted["n"].sum()), counted["value"].n_unique()
    if n_rows and counted["value"].null_count() == len(counted):
        return "all its values are missing"
    if n_distinct == 1:
        return "it is constant"
    unique = n_distinct == n_rows and not counted["value"].has_nulls()
    if n_rows < _MIN_ROWS_UNIQUE or not unique:
        return None
    if kind == "categorical":
        return "it has one value per row"
    return "it numbers the rows" if is_row_number(counted["value"]) else None


def _named(setting: object) -> Iterable[str]:
    return [name for name in setting if name != PER_FIELD_DEFAULT] if isinstance(setting, Mapping) else ()


def _check_enough(fields: tuple[Field, ...], skipped: tuple[tuple[str, str], ...]) -> None:
    if len(fields) >= 2:
        return
    given = f"given {len(fields)} ({', '.join(f.name for f in fields)})" if fields else "given none"
    reasons = "".join(f"; {name!r} was left out: {reason}" for name, reason in skipped)
    raise SchemaError(
        f"a model needs at least two fields, because it learns how they depend on each other; {given}{reasons}. Add "
        "columns, or name the kinds of these in data.kinds to keep them"
    )

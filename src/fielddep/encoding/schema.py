"""Schema: the fields of a table, their kinds, and the target. All of it is inferred and can be overridden.

A field is categorical, numerical, both, a list, or text (`kinds.py`); a column of dates gives several fields, one for
each part.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from fielddep.config.data import PER_FIELD_DEFAULT, DataConfig, Kind, Numeric, for_field
from fielddep.config.settings import Config
from fielddep.encoding.dates import PARTS, Part, choose_format, part_name, read_times
from fielddep.encoding.kinds import KindChoice, infer_kind, is_row_number
from fielddep.encoding.lists import list_separator
from fielddep.encoding.split import split_column
from fielddep.encoding.target import Target
from fielddep.encoding.values import canonical
from fielddep.errors import SchemaError
from fielddep.wording import did_you_mean

_MIN_ROWS_UNIQUE = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Field:
    """One input of a model: a column, or a part of the dates in a column.

    Attributes:
        name: that of its column, or of column and part.
        kind: categorical (ids), numerical (a number, and ids of its bins), both (ids and a number), list or text.
        numeric: how a numerical field enters the model; None for any other.
        column: the column of the table that it is read from; by default its name.
        part: the part of a date that it holds; None if the field is the column itself.
        format: how text in a column of dates is parsed; see `dates.read_times`.
        origin: earliest time of the training rows in a column of dates, in microseconds since 1970.
        separator: what stands between the values of a list given as text; None if a text is one value.
        shares: the field whose values and ids it shares; None if it has its own.
    """

    name: str
    kind: Kind
    numeric: Numeric | None = None
    column: str = None  # type: ignore[assignment]  # set below
    part: Part | None = None
    format: str | None = None
    origin: int | None = None
    separator: str | None = None
    shares: str | None = None

    def __post_init__(self) -> None:
        if self.column is None:
            object.__setattr__(self, "column", self.name)

    def to_json(self) -> dict[str, Any]:
        """Plain values; what a field does not have is left out, except for `numeric`, which was always written."""
        left_out = () if self.part else ("column",)
        found = {key: value for key, value in vars(self).items() if value is not None and key not in left_out}
        return {"numeric": self.numeric} | found


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

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the fields are read from, each once."""
        return tuple(dict.fromkeys(field.column for field in self.fields))

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write and `from_json` reads back to an equal schema."""
        return {
            "fields": [field.to_json() for field in self.fields],
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


Plan = tuple[Field, ...] | str
"""The fields of a column, or why it is useless."""


def build_schema(planned: Mapping[str, Plan], target: Target, config: Config) -> Schema:
    """The schema of planned columns, with a warning for each skipped one.

    Raises:
        SchemaError: for fewer than two fields.
    """
    skipped = tuple((name, reason) for name, reason in planned.items() if isinstance(reason, str))
    fields = _unique_names(
        [field for plan in planned.values() if not isinstance(plan, str) for field in plan],
        {*planned, target.name, *filter(None, (config.data.weight, *config.split.columns))},
    )
    _check_enough(fields, skipped)
    _check_shares(fields)
    for name, reason in skipped:
        log.warning("field %r is left out: %s; name its kind in data.kinds to keep it", name, reason)
    weight, split_column = config.data.weight, config.split.column
    return Schema(fields=fields, target=target, weight=weight, split_column=split_column, skipped=skipped)


def _unique_names(fields: Sequence[Field], columns: set[str]) -> tuple[Field, ...]:
    """The fields with underscores behind the names of parts that are names of columns too."""
    named, taken = [], set(columns)
    for field in fields:
        name = field.name
        while field.part is not None and name in taken:
            name += "_"
        taken.add(name)
        named.append(replace(field, name=name))
    return tuple(named)


def check_column_names(columns: Sequence[str], config: Config) -> None:
    """Refuse settings that name a column the table does not have."""
    data = config.data
    for setting, names in (
        ("data.target", [data.target] if data.target else []),
        ("data.weight", [data.weight] if data.weight else []),
        ("data.fields", data.fields or ()),
        ("data.exclude", data.exclude),
        ("data.kinds", data.kinds),
        ("data.date_formats", data.date_formats),
        ("data.lists", data.lists),
        ("data.shares", (*data.shares, *data.shares.values())),
        ("data.numeric", _named(data.numeric)),
        ("data.min_count", _named(data.min_count)),
    ):
        for name in names:
            if name not in columns:
                raise SchemaError(f"{setting} names {name!r}, which is not a column; {did_you_mean(name, columns)}")
    if "" in data.lists.values():
        raise SchemaError("data.lists needs a separator of at least one character; given an empty one. Name it")
    for reserved in (data.target, data.weight):
        if reserved is not None and reserved in (data.fields or ()):
            raise SchemaError(f"data.fields must not name {reserved!r}, the target or weight; remove it there")
    if data.target is not None or config.split.columns:  # a table can be described without either
        split_column(columns, config.split, data.target)


def candidate_names(columns: Sequence[str], config: Config) -> list[str]:
    """Columns that may be fields."""
    data = config.data
    if data.fields is None:
        names = [name for name in columns if name not in {data.target, data.weight, *config.split.columns}]
    else:
        names = list(dict.fromkeys(data.fields))
    return [name for name in names if name not in data.exclude]


def plan_field(name: str, counted: pl.DataFrame, data: DataConfig, every: pl.Series | None = None) -> Plan:
    """The fields of a column, or why it is useless.

    Args:
        name: the column.
        counted: `distinct_values` of the column in training rows.
        data: settings.
        every: different values of all rows, which decide the format of dates; by default those of `counted`.
    """
    kind = choose_kind(name, counted, data).kind
    if kind == "date":
        return _plan_dates(name, counted, data, every)
    if may_skip(name, data):
        reason = skip_reason(counted.with_columns(value=canonical(counted["value"], data.missing_values)), kind)
        if reason:
            return reason
    return (make_field(name, kind, data, _separator(name, counted, data) if kind == "list" else None),)


def choose_kind(name: str, counted: pl.DataFrame, data: DataConfig) -> KindChoice:
    """The kind of a column, told by the settings or inferred."""
    kind = known_kind(name, data)
    if kind is not None:
        return KindChoice(kind, "told")
    choice = infer_kind(counted["value"].alias(name), data.missing_values, counted)
    if choice.kind in ("numerical", "both", "date") and name in (*data.shares, *data.shares.values()):
        return KindChoice("categorical", "shared")  # only values can be shared
    return choice


def known_kind(name: str, data: DataConfig) -> Kind | None:
    """The kind of a column, if the settings name it."""
    if name in data.kinds:
        return data.kinds[name]
    return "date" if name in data.date_formats else "list" if name in data.lists else None


def _separator(name: str, counted: pl.DataFrame, data: DataConfig) -> str | None:
    """What stands between the values of a list; None in a column of lists."""
    if name in data.lists:
        return data.lists[name]
    found = list_separator(counted, data.missing_values)
    if found is None and counted["value"].dtype == pl.String:
        raise SchemaError(f"a list given as text needs its separator; column {name!r} has none. Set data.lists.{name}")
    return None if found is None else found[0]


def _plan_dates(name: str, counted: pl.DataFrame, data: DataConfig, every: pl.Series | None) -> Plan:
    """The parts of dates that vary, as fields."""
    values, missing = counted["value"].alias(name), data.missing_values
    time_format = choose_format(values, counted["n"], data.date_formats.get(name), missing, every)
    times = read_times(values, time_format, missing)
    reason = skip_reason(counted.with_columns(value=times.instant), "date") if may_skip(name, data) else None
    if reason:
        return reason
    shared: dict[str, Any] = {"column": name, "format": time_format, "origin": times.earliest()}
    plain = {part: make_field(name, "numerical" if part == "elapsed" else "categorical", data) for part in PARTS}
    found = times.varying_parts()
    return tuple(replace(plain[part], name=part_name(name, part), part=part, **shared) for part in found)


def make_field(name: str, kind: Kind, data: DataConfig, separator: str | None = None) -> Field:
    """A field of a known kind, with the settings of the column."""
    default: Numeric = "quantile"
    numeric = for_field(data.numeric, name, default) if kind == "numerical" else None
    return Field(name=name, kind=kind, numeric=numeric, separator=separator, shares=data.shares.get(name))


def may_skip(name: str, data: DataConfig) -> bool:
    """Whether a useless column may be skipped: not if the settings name it as a field."""
    named = (data.fields or (), data.shares, data.shares.values())
    return known_kind(name, data) is None and not any(name in names for names in named)


def skip_reason(counted: pl.DataFrame, kind: Kind) -> str | None:
    """Why a field of canonical values (value) with the rows of each (n) is useless; None if it is not."""
    n_rows, n_distinct = int(counted["n"].sum()), counted["value"].n_unique()
    if n_rows and counted["value"].null_count() == len(counted):
        return "all its values are missing"
    if n_distinct == 1:
        return "it is constant"
    if kind == "date":
        return None
    unique = n_distinct == n_rows and not counted["value"].has_nulls()
    if n_rows < _MIN_ROWS_UNIQUE or not unique:
        return None
    if kind in ("categorical", "both"):
        return "it has one value per row"
    return "it numbers the rows" if is_row_number(counted["value"]) else None


def _check_shares(fields: Sequence[Field]) -> None:
    """Refuse a field that shares the values of one that has none of its own."""
    by_name = {field.name: field for field in fields}
    for field in fields:
        if field.shares is None:
            continue
        other = by_name.get(field.shares)
        if other is None or other.shares is not None or "numerical" in (field.kind, other.kind):
            raise SchemaError(
                f"data.shares.{field.name} must name a field with values of its own, neither of them numerical; given "
                f"{field.shares!r}. Name another, or set the kinds in data.kinds"
            )


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

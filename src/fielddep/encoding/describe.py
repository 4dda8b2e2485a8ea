"""Describe: what a table holds, before anything is trained. Numbers only; the command line prints them.

A field that alone determines the target is a suspected leak: it was probably recorded after the fact. So is one that is
filled, or empty, almost exactly where the target has one value, such as a time of return.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.metrics import KnownTask
from fielddep.config.settings import Config
from fielddep.encoding.dates import is_guess, read_times
from fielddep.encoding.field import list_kind, text_counts
from fielddep.encoding.lists import list_separator
from fielddep.encoding.measures import add_halves
from fielddep.encoding.numbers import Moments
from fielddep.encoding.schema import Plan, candidate_names, check_column_names, choose_kind, plan_field, skip_reason
from fielddep.encoding.target import ClassLabel, Target, infer_target, target_score
from fielddep.encoding.values import NUMBER_MISSING, as_number, canonical, distinct_values, shorten, try_numbers
from fielddep.encoding.with_target import rows_with_target
from fielddep.wording import listing

_MAX_CHANCE_LOG = math.log(1e-6)
_MIN_ORDERED = 20
_MIN_IN_CLASS = 5
_SAME = 1e-9
_MAX_CONTRARY = 0.1

Floats = npt.NDArray[np.float64]


def most_frequent_share(target: pl.Series) -> float:
    """Share of the most frequent target value."""
    counts = np.unique(target.to_numpy(), return_counts=True)[1]
    return float(counts.max() / len(target))


def determines(groups: pl.DataFrame, most_frequent: float) -> bool:
    """Whether every value of a field has one target value, and that cannot be chance.

    Values must repeat, at least twice on average. If field and target were unrelated, each repetition would agree with
    at most the probability of the most frequent target value; in total this must be below one in a million.

    Args:
        groups: one row per value: value, n (rows), low and high (range of the target in them).
        most_frequent: share of the most frequent target value.
    """
    groups = _merge(groups)
    n_rows, n_distinct = int(groups["n"].sum()), len(groups)
    if n_distinct < 2 or n_distinct > n_rows / 2:
        return False
    low, high = groups["low"].to_numpy(), groups["high"].to_numpy()
    span = high.max() - low.min()
    if span == 0 or (high - low).max() > _SAME * span:
        return False
    return (n_rows - n_distinct) * math.log(most_frequent) < _MAX_CHANCE_LOG


def orders(groups: pl.DataFrame, *, regression: bool) -> bool:
    """Whether thresholds on the numbers of a field give the target without error; `groups` as for `determines`."""
    groups = _merge(groups).sort("value")
    if len(groups) < _MIN_ORDERED:
        return False
    low, high = groups["low"].to_numpy(), groups["high"].to_numpy()
    if regression:
        return len(np.unique(low)) >= _MIN_ORDERED and (_rises(low, high) or _rises(-high, -low))
    if (low != high).any():
        return False
    classes, index = np.unique(low, return_inverse=True)
    n_in_class = np.bincount(index, weights=groups["n"].to_numpy())
    n_changes = int((np.diff(low) != 0).sum())
    return n_changes == len(classes) - 1 > 0 and bool(n_in_class.min() >= _MIN_IN_CLASS)


def follows_target(filled: pl.Series, target: pl.Series) -> bool:
    """Whether a field is filled, or empty, where the target has one value and almost nowhere else.

    Rows to the contrary may be a tenth of the rarer of filled and empty. That all this is chance must be less likely
    than one in a million.

    Args:
        filled: whether each row has a value.
        target: the target of each row, as a number.
    """
    table = pl.DataFrame({"target": target, "n": 1, "filled": filled.cast(pl.Int64)})
    n_rows, n_filled = len(table), int(table["filled"].sum())
    rarer = min(n_filled, n_rows - n_filled)
    if rarer < _MIN_IN_CLASS:
        return False
    by_value = table.group_by("target").agg(pl.col("n", "filled").sum())
    # For each value, rows against "filled exactly where the target has it"; all others are against "empty exactly".
    against = by_value["n"] + n_filled - 2 * by_value["filled"]
    contrary = min(int(n) for n in (against.min(), n_rows - against.max()))
    if contrary > _MAX_CONTRARY * rarer:
        return False
    chance = _log_choose(rarer, contrary) + _log_choose(n_rows - rarer, contrary) - _log_choose(n_rows, rarer)
    return chance < _MAX_CHANCE_LOG


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _merge(groups: pl.DataFrame) -> pl.DataFrame:
    """One row per known value; several raw values may have become the same."""
    known = groups.filter(pl.col("value").is_not_null())
    return known.group_by("value").agg(pl.col("n").sum(), pl.col("low").min(), pl.col("high").max())


def _rises(low: Floats, high: Floats) -> bool:
    return bool((high[:-1] <= low[1:]).all())


_N_EXAMPLES = 3
_LONG_VALUE = 1000
_HIGH_MISSING = 0.5
_FREQUENT = 0.01
_MEAN_MISSING = ("na", "n/a", "nan", "null", "none", "?", "-")


@dataclass(frozen=True, kw_only=True)
class TargetSummary:
    """The column to predict: classes with their shares, or mean and standard deviation."""

    name: str
    task: KnownTask
    classes: tuple[ClassLabel, ...] = ()
    shares: tuple[float, ...] = ()
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True, kw_only=True)
class FieldSummary:
    """One column.

    Attributes:
        name: the column.
        dtype: its type in the table.
        kind: categorical, numerical, both, date with the parts that are used, list, text, target, weight or left out.
        n_distinct: different values, not counting missing; of lists and text, those in the cells.
        missing_share: share of rows without a value.
        examples: the most frequent values, each with its count.
        warnings: what a user should check.
        reason: why it has this kind, in one word; empty for a column that is no field.
    """

    name: str
    dtype: str
    kind: str
    n_distinct: int
    missing_share: float
    examples: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...] = ()
    separator: str | None = None
    """What stands between the values of a list that is given as text."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TableDescription:
    """A table; `target` is None if the settings name none."""

    n_rows: int
    target: TargetSummary | None
    columns: tuple[FieldSummary, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        return asdict(self)


def describe(table: pl.DataFrame, config: Config) -> TableDescription:
    """Summarise every column, with warnings on fields that are useless, suspicious or mostly missing.

    Raises:
        SchemaError: for settings that name an absent column, or an unusable target.
    """
    data = config.data
    check_column_names(table.columns, config)
    table = rows_with_target(table, data)
    target, target_values = None, None
    if data.target is not None:
        target = infer_target(table[data.target], data.task, data.missing_values)
        target_values = _target_numbers(table[data.target], target, data.missing_values)
    counted = {name: _counted(table[name], target, target_values) for name in candidate_names(table.columns, config)}
    planned = {name: plan_field(name, values, data) for name, values in counted.items()}
    reasons = {name: choose_kind(name, values, data).reason for name, values in counted.items()}
    return TableDescription(
        n_rows=len(table),
        target=None if target is None or target_values is None else _summarise_target(target, target_values),
        columns=tuple(
            _summarise(column, config, planned, reasons.get(column.name, ""), target, target_values)
            for column in table.iter_columns()
        ),
    )


def _counted(column: pl.Series, target: Target | None, target_values: pl.Series | None) -> pl.DataFrame:
    """Different values of a column with the targets of their rows, which may decide its kind."""
    counted = distinct_values(column)
    if target is None or target_values is None:
        return counted
    return add_halves(counted, column, target_score(target)(_standardised(target_values, target)))


def _standardised(target_values: pl.Series, target: Target) -> Floats:
    values: Floats = target_values.to_numpy().astype(np.float64)
    if target.task != "regression":
        return values
    moments = Moments.of(values)
    return (values - moments.mean) / moments.std


def _target_numbers(column: pl.Series, target: Target, missing_values: Iterable[str]) -> pl.Series:
    """The target as one number per row: the class index, or the number itself."""
    if target.task == "regression":
        return as_number(column, missing_values)
    index: pl.Series = pl.Series(target.encode(column, missing_values)).cast(pl.Float64)
    return index


def _summarise_target(target: Target, target_values: pl.Series) -> TargetSummary:
    if target.task == "regression":
        mean = Moments.of(target_values.to_numpy()).mean
        std = target_values.std(ddof=0)
        return TargetSummary(name=target.name, task=target.task, mean=mean, std=float(std))  # type: ignore[arg-type]  # a number
    counts = dict(target_values.value_counts(name="n").iter_rows())
    shares = tuple(counts[float(i)] / len(target_values) for i in range(len(target.classes)))
    return TargetSummary(name=target.name, task=target.task, classes=target.classes, shares=shares)


def _summarise(
    column: pl.Series,
    config: Config,
    planned: Mapping[str, Plan],
    reason: str,
    target: Target | None,
    target_values: pl.Series | None,
) -> FieldSummary:
    kind = _kind(column.name, config, planned)
    summary = FieldSummary(
        name=column.name,
        dtype=str(column.dtype),
        kind=kind,
        n_distinct=0,
        missing_share=column.null_count() / max(len(column), 1),
        examples=(),
    )
    if column.name not in planned and (column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object)):
        return summary  # the user excluded it, and its values cannot be counted
    raw = distinct_values(column, target_values)
    missing = (*config.data.missing_values, *(NUMBER_MISSING if kind == "numerical" else ()))
    plan = planned.get(column.name)
    values = raw.with_columns(value=_known_texts(raw["value"], plan, missing))
    counted = values.drop_nulls("value").group_by("value").agg(pl.col("n").sum())
    missing_share = 1 - int(counted["n"].sum()) / len(column) if len(column) else 0.0
    warnings: list[str] = []
    if kind not in ("target", "weight"):
        warnings = _warnings(values, plan, missing_share)
        if plan is not None:
            warnings += _missing_hint(counted, len(column)) + _list_hint(raw, plan, config)
        warnings += _date_hint(raw["value"], plan, config)
        if target is not None and target_values is not None:
            share = most_frequent_share(target_values)
            if _leaks(raw, values, config, target, share):
                warnings.append(f"suspected leak: it alone determines the target {target.name!r}")
            elif 0 < missing_share < 1 and follows_target(canonical(column, missing).is_not_null(), target_values):
                warnings.append(f"suspected leak: whether it is empty goes with the target {target.name!r}")
    field = plan[0] if isinstance(plan, tuple) else None
    if field is not None and list_kind(field) is not None:
        in_cells = text_counts(field, raw, config.data.missing_values).drop_nulls("value")
        counted = in_cells.group_by("value").agg(pl.col("n").sum())
    return replace(
        summary,
        n_distinct=len(counted),
        missing_share=missing_share,
        examples=_examples(counted),
        warnings=tuple(warnings),
        separator=None if field is None else field.separator,
        reason=reason,
    )


def _list_hint(raw: pl.DataFrame, plan: Plan, config: Config) -> list[str]:
    """A hint at a separator, where a list is likely but not clear."""
    if isinstance(plan, str) or plan[0].kind != "categorical" or plan[0].column in config.data.kinds:
        return []
    found = list_separator(raw, config.data.missing_values)
    if found is None:
        return []
    return [f"its cells may be lists of values: if so, set data.lists.{plan[0].column} = {found[0]!r}"]


def _examples(counted: pl.DataFrame) -> tuple[tuple[str, int], ...]:
    # Only candidates are sorted, because a field may have a million values.
    candidates = counted.filter(pl.col("n") >= pl.col("n").top_k(_N_EXAMPLES).min())
    frequent = candidates.sort("n", "value", descending=[True, False]).head(_N_EXAMPLES)
    return tuple((shorten(value), n) for value, n in frequent.iter_rows())


def _kind(name: str, config: Config, planned: Mapping[str, Plan]) -> str:
    if name == config.data.target:
        return "target"
    if name == config.data.weight:
        return "weight"
    plan = planned.get(name, "")
    if isinstance(plan, str):
        return "left out"
    parts = [field.part for field in plan if field.part is not None]
    return f"date: {', '.join(parts)}" if parts else plan[0].kind


def _date_format(plan: Plan | None) -> str | None:
    """The format of a column of dates; None for any other column."""
    return plan[0].format if isinstance(plan, tuple) else None


def _known_texts(values: pl.Series, plan: Plan | None, missing: Iterable[str]) -> pl.Series:
    """Canonical texts; null for missing, and for text that is no date in a column of dates."""
    texts, time_format = canonical(values, missing), _date_format(plan)
    if time_format is None:
        return texts
    known = read_times(values, time_format, missing).wall.is_not_null()
    return pl.select(pl.when(known).then(texts)).to_series()


def _warnings(values: pl.DataFrame, plan: Plan | None, missing_share: float) -> list[str]:
    found = []
    is_date = _date_format(plan) is not None
    reason = skip_reason(values, "date" if is_date else plan[0].kind) if isinstance(plan, tuple) else plan
    if reason:
        found.append(reason)
    elif missing_share > _HIGH_MISSING:
        found.append(f"{missing_share:.0%} of its values are missing")
    longest = values["value"].str.len_chars().max()
    is_text = isinstance(plan, tuple) and plan[0].kind == "text"
    if isinstance(longest, int) and longest > _LONG_VALUE and not is_text:
        found.append(f"its longest value has {longest} characters")
    return found


def _missing_hint(counted: pl.DataFrame, n_rows: int) -> list[str]:
    """A hint at texts that look like missing values, if they are frequent or all other values are numbers."""
    suspect = pl.col("value").str.strip_chars().str.to_lowercase().is_in(_MEAN_MISSING)
    found, others = counted.filter(suspect).sort("n", "value", descending=[True, False]), counted.filter(~suspect)
    if not len(found) or not len(others):
        return []
    if found["n"].sum() < _FREQUENT * n_rows and try_numbers(others["value"]) is None:
        return []
    return [f"{listing(found['value'].to_list())} may mean missing: if so, list it in data.missing_values"]


def _date_hint(values: pl.Series, plan: Plan | None, config: Config) -> list[str]:
    """A hint that the order of day and month is a guess."""
    time_format = _date_format(plan)
    if time_format is None or time_format in config.data.date_formats.values():
        return []
    if not is_guess(values, time_format, config.data.missing_values):
        return []
    return [f"day or month may come first in its dates: taken as {time_format}; if wrong, set data.date_formats"]


def _leaks(raw: pl.DataFrame, values: pl.DataFrame, config: Config, target: Target, most_frequent: float) -> bool:
    if determines(values, most_frequent):
        return True
    numbers = try_numbers(raw["value"], config.data.missing_values)
    return numbers is not None and orders(raw.with_columns(value=numbers), regression=target.task == "regression")

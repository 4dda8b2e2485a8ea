"""Settings of data and split: how a table is read, encoded and divided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from fielddep.config.mdl import setting

Task = Literal["auto", "binary", "multiclass", "regression"]
Kind = Literal["categorical", "numerical", "both", "date", "list", "text"]
Numeric = Literal["scale", "quantile", "log2"]

V = TypeVar("V")
PER_FIELD_DEFAULT = "*"
"""Key of a per-field setting for all fields that it does not name."""


def for_field(value: V | Mapping[str, V], name: str, otherwise: V) -> V:
    """The value of a per-field setting for one field.

    Example:
        >>> for_field({"*": 2, "user": 5}, "user", 1), for_field({"*": 2}, "item", 1), for_field(3, "item", 1)
        (5, 2, 3)
    """
    if isinstance(value, Mapping):
        return value.get(name, value.get(PER_FIELD_DEFAULT, otherwise))
    return value


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How a table is read and encoded."""

    target: str | None = setting(None, "column to predict")
    missing_target: Literal["error", "drop"] = setting(
        "error", "what happens to rows without a target in training and evaluation: an error, or they are dropped"
    )
    weight: str | None = setting(None, "column of sample weights; it is not a field")
    task: Task = setting("auto", "auto, binary, multiclass or regression; auto looks at the target")
    fields: tuple[str, ...] | None = setting(None, "columns to use; default: all but target, weight and split column")
    exclude: tuple[str, ...] = setting((), "columns not to use")
    kinds: dict[str, Kind] = setting(
        {},
        "kind of a column, where the inferred one is wrong: categorical, numerical, both (ids and numbers), date, list "
        "or text",
    )
    date_formats: dict[str, str] = setting(
        {},
        "format of the dates in a column, as strptime of Python or Polars has it, such as %d.%m.%Y; for dates that are "
        "not recognised, such as 20240131, and where day and month could be exchanged",
    )
    lists: dict[str, str] = setting(
        {}, "fields whose cells hold several values, and the separator between them, such as {genres = '|'}"
    )
    shares: dict[str, str] = setting(
        {}, "fields that share the values and embeddings of another field, such as {history = 'item'}"
    )
    text_words: int = setting(20_000, "most words of a text field with embeddings of their own", at_least=1)
    numeric: Numeric | dict[str, Numeric] = setting(
        "quantile",
        "how numerical fields are encoded: scale (standardised value x vector), quantile (bins of equal mass) or "
        "log2 (floor(ln(x)^2), the paper's binning of counts); one word or per field",
    )
    n_bins: int | None = setting(None, "quantile bins per numerical field; default: from the rows", at_least=2)
    min_count: int | dict[str, int] = setting(
        1, "values seen fewer times in training share the rare id; one number or per field", at_least=1
    )
    counts_from: Literal["train", "all"] = setting(
        "train",
        "rows that vocabularies are counted on; 'all' also counts validation and test rows, which is a leak, but what "
        "the paper's reference code does",
    )
    handle_unknown: Literal["rare", "error"] = setting(
        "rare", "what happens to a value never seen in training: it takes the rare id (rare) or raises an error"
    )
    crosses: Literal["auto", "none"] | tuple[tuple[str, ...], ...] = setting(
        "auto",
        "pairs of fields whose joint values get their own embeddings, such as [['month', 'day']]; auto finds them on "
        "training rows",
    )
    cross_min_count: int = setting(
        5, "joint values of a cross seen fewer times in training share its rare id", at_least=1
    )
    evidence: Literal["auto", "none"] | tuple[tuple[str, ...], ...] = setting(
        "auto",
        "what training rows with the same values did, as inputs of the model: for every field and for combinations of "
        "two to four, such as [['user', 'item']]; auto chooses them on training rows. Nothing is counted for a model "
        "that does not use it: see model.direct",
    )
    evidence_min_rows: int = setting(1, "joint values of fewer training rows are no evidence; 1 keeps all", at_least=1)
    max_combinations: int = setting(
        100, "most combinations of several fields that data.evidence = 'auto' counts", at_least=0
    )
    evidence_max_cells: int = setting(
        20_000_000, "most joint values of data.evidence = 'auto'; what says least is dropped first", at_least=0
    )
    max_related: int = setting(
        64,
        "most fields that MDL relates to each other; of more, training rows choose those that say most about the "
        "target, and all others have a weight per value",
        at_least=2,
    )
    missing_values: tuple[str, ...] = setting(
        ("",), "texts that mean missing in any field; empty cells, nulls and NaN always do"
    )
    format: str | None = setting(None, "csv, tsv, jsonl, parquet, ipc, libffm or libsvm; default: from the file's name")
    delimiter: str | None = setting(None, "delimiter of text tables; default: from the name and the first lines")
    encoding: str = setting("utf8", "text encoding of delimited files and JSON lines, as Python names it")


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How rows are divided into training, validation and test."""

    method: Literal["random", "stratified", "group", "time", "column"] = setting(
        "random",
        "random; stratified (by target); group (rows of one group stay together); time (the latest rows are held out); "
        "column (a column holds train, validation or test)",
    )
    column: str | None = setting(None, "column of the group, time or column method; it is not a field unless listed")
    group: str | None = setting(
        None,
        "column of groups whose rows belong together, where another method divides them, such as column: no row is "
        "told what others of its group did; it is not a field unless listed",
    )
    validation: float = setting(0.1, "share of rows held out for early stopping", at_least=0, below=1)
    test: float = setting(
        0.1, "share of rows held out for the final metrics; 0 trains on all but validation", at_least=0, below=1
    )
    seed: int = setting(0, "seed of the split", at_least=0, below=2**32)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide, which are no fields unless listed."""
        return tuple(filter(None, (self.column, self.group)))

"""Interning: each different value of a column gets a small number when it is first seen.

Text is hashed once, and all later work is on numbers: counting, splitting, encoding. A column has one of three modes:

- *codes*: 0 for null, then 1 onwards in order of first appearance. The different values stay in memory.
- *numbers*: a measure or a date with very many different values is stored as numbers from then on.
- *skipped*: a column with another value in each of very many rows is useless.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.data import Kind
from fielddep.config.settings import Config
from fielddep.encoding.coded import DEFAULT_SIZES, Array, Cells, CodedColumn, CodedTable, MemoryCells, Mode, Sizes
from fielddep.encoding.dates import find_format, is_date_type, read_times, time_numbers
from fielddep.encoding.kinds import infer_kind
from fielddep.encoding.schema import candidate_names, known_kind, may_skip, skip_reason
from fielddep.encoding.split import BY_COLUMN
from fielddep.encoding.values import LIST_SEPARATOR, as_number, canonical, first_not_a_number, is_list
from fielddep.errors import SchemaError, SplitError

log = logging.getLogger(__name__)

NULL_CODE = 0

NumberPolicy = Literal["never", "measure", "always", "dates", "times"]


class Dictionary:
    """The different texts of a column, numbered from 1 in order of first appearance; null is 0."""

    def __init__(self) -> None:
        self._dtype = pl.Categorical(pl.Categories.random())
        # Polars drops a numbering when its last column is freed.
        self._alive = pl.Series([""], dtype=pl.String).head(0).cast(self._dtype)
        self.n_values = 0

    def codes(self, texts: pl.Series) -> npt.NDArray[np.uint32]:
        """The number of every text; new texts get new numbers."""
        numbered = texts.cast(self._dtype)
        if not self.n_values:
            self._alive = numbered.head(1)
        physical = numbered.to_physical().cast(pl.UInt32)
        if isinstance(highest := physical.max(), int):
            self.n_values = max(self.n_values, highest + 1)
        known = (physical + 1).fill_null(NULL_CODE) if physical.null_count() else physical + 1
        codes: npt.NDArray[np.uint32] = known.to_numpy()
        return codes

    def texts(self, start: int = 0) -> pl.Series:
        """Texts by number, from code `start + 1` on."""
        places = pl.Series(np.arange(start, self.n_values, dtype=np.uint32))
        texts: pl.Series = places.cat.to(self._dtype).cast(pl.String)
        return texts


def to_text(column: pl.Series) -> pl.Series:
    """A text of every value from which `from_text` restores the value, bit by bit; those of a list are canonical."""
    if is_list(column.dtype):
        return canonical(column, ())
    plain = column
    if column.dtype == pl.Boolean:
        plain = column.cast(pl.UInt8)
    elif column.dtype.is_temporal():
        plain = column.to_physical()
    text: pl.Series = plain.cast(pl.String)
    return text


def from_text(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Values of the texts that `to_text` gave for a column of this type."""
    if dtype == pl.Null:
        return pl.Series(texts.name, [None] * len(texts), dtype=pl.Null)
    if is_list(dtype):
        return texts.str.split(LIST_SEPARATOR)
    plain = texts
    if dtype == pl.Boolean:
        plain = texts.cast(pl.UInt8)
    elif dtype.is_temporal():
        plain = texts.cast(pl.Int64)
    column: pl.Series = plain.cast(pl.Categorical() if isinstance(dtype, pl.Enum) else dtype)
    return column


class ColumnInterner:
    """Turns one column, chunk by chunk, into codes or numbers.

    Args:
        name: the column.
        dtype: its type in the table.
        sizes: when the mode of a column is decided.
        missing_values: texts that mean missing.
        may_skip: whether the column may be skipped as useless.
        number_policy: whether it may become numbers: "never", if it looks like a "measure" or like dates, "always" if
            all values are numbers, as "dates", or as "times", for the column of a split by time.
        date_format: format of dates, if the settings name it.
        state: result of `state`, to resume from there.
        texts: the texts known at that point.
    """

    def __init__(
        self,
        name: str,
        dtype: pl.DataType,
        *,
        sizes: Sizes = DEFAULT_SIZES,
        missing_values: Iterable[str] = ("",),
        may_skip: bool = False,
        number_policy: NumberPolicy = "never",
        date_format: str | None = None,
        state: dict[str, Any] | None = None,
        texts: pl.Series | None = None,
    ) -> None:
        self.name, self.dtype, self.sizes = name, dtype, sizes
        self.missing_values = tuple(missing_values)
        self.may_skip, self.number_policy = may_skip, number_policy
        self.dictionary = Dictionary()
        if texts is not None and len(texts):
            self.dictionary.codes(texts)
        known = state or {}
        self.mode: Mode = known.get("mode", "codes")
        self.reason: str | None = known.get("reason")
        self._judged: bool = known.get("judged", False)
        self._judge_numbers_at: int = known.get("judge_numbers_at", sizes.max_distinct)
        self._is_clock: bool = known.get("is_clock", False)
        self.date_format, self.found_format = date_format, known.get("found_format", date_format)
        self._warn_at: int = known.get("warn_at", sizes.many_distinct)

    def state(self) -> dict[str, Any]:
        """What is needed to resume, as plain values."""
        names = ("judged", "judge_numbers_at", "is_clock", "warn_at")
        found = {"mode": self.mode, "reason": self.reason, "found_format": self.found_format}
        return {**found, **{name: getattr(self, f"_{name}") for name in names}}

    def take(self, column: pl.Series, first_row: int) -> Array | None:
        """Codes or numbers of the next rows; None if the column is skipped."""
        if self.mode == "codes":
            codes = self.dictionary.codes(to_text(column))
            if (first_row + len(column)) % self.sizes.chunk_rows == 0:
                self._choose_mode(first_row + len(column))
            return codes
        if self.mode == "numbers":
            return self.numbers(column, first_row).fill_null(np.nan).to_numpy()
        return None

    def numbers(self, column: pl.Series, first_row: int = 0) -> pl.Series:
        """Values as numbers; null for missing. Dates are microseconds since 1970."""
        if self.is_date and self.found_format is not None:
            times = read_times(column, self.found_format, self.missing_values)
            physical: pl.Series = times.instant.to_physical().cast(pl.Float64)
            return physical.alias(self.name)
        if self.number_policy != "times":
            return as_number(column, self.missing_values, first_row=first_row)
        numbers, is_clock = time_numbers(column, self.found_format, self.missing_values, first_row)
        if is_clock != self._is_clock and numbers.null_count() < len(numbers):
            raise SplitError(
                f"split.column {self.name!r} must hold times of one format; dates and plain numbers are mixed from "
                f"row {first_row} on (counted from 0). Convert them"
            )
        return numbers

    @property
    def is_date(self) -> bool:
        """Whether the column is stored as numbers that are dates of a field."""
        return self._is_clock and self.number_policy != "times"

    def values(self) -> pl.Series:
        """Different values by code, in the column's own type; null first."""
        texts = self.dictionary.texts()
        null = pl.Series([None], dtype=pl.String)
        return from_text(pl.concat([null, texts.alias("")]), self.dtype).alias(self.name)

    def _choose_mode(self, n_rows: int) -> None:
        """Decide the mode of the rows that follow."""
        if self.may_skip and not self._judged and n_rows >= self.sizes.judged_rows:
            self._judged = True
            if self.dictionary.n_values == n_rows:
                self.reason = self._skip_reason(n_rows)
                self.mode = "skipped" if self.reason else "codes"
        if self.number_policy != "never" and self.mode == "codes" and self.dictionary.n_values > self._judge_numbers_at:
            self._judge_numbers_at *= 2
            if self._is_measure(n_rows):
                self.mode = "numbers"
        if self.mode == "codes" and self.dictionary.n_values >= self._warn_at:
            self._warn_of_many(n_rows)

    def _warn_of_many(self, n_rows: int) -> None:
        n_values = self.dictionary.n_values
        while self._warn_at <= n_values:
            self._warn_at *= 2
        log.warning(
            "column %r has %s different values in the first %s rows, and memory grows with every new one; if you do "
            "not need it, list it in data.exclude",
            *(self.name, f"{n_values:,}", f"{n_rows:,}"),
        )

    def _counted(self, n_rows: int) -> pl.DataFrame:
        """The different values and rows of each, of which only the sum is right: the kind depends on nothing else."""
        values = self.values().slice(1)
        counts = np.ones(len(values), dtype=np.int64)
        counts[-1] += n_rows - len(values)
        return pl.DataFrame({"value": values, "n": counts})

    def _kind(self, counted: pl.DataFrame) -> Kind:
        return infer_kind(counted["value"].alias(self.name), self.missing_values, counted).kind

    def _skip_reason(self, n_rows: int) -> str | None:
        counted = self._counted(n_rows)
        texts = canonical(counted["value"], self.missing_values)
        return skip_reason(counted.with_columns(value=texts), self._kind(counted))

    def _is_measure(self, n_rows: int) -> bool:
        counted = self._counted(n_rows)
        if self.number_policy == "times":
            # Later rows alone may leave open which of day and month comes first.
            self.found_format = self.date_format or find_format(counted["value"], self.missing_values)
            values = counted["value"].alias(self.name)
            self._is_clock = time_numbers(values, self.found_format, self.missing_values)[1]
            return True
        if self.number_policy == "always":
            return first_not_a_number(counted["value"], self.missing_values) is None
        kind: Kind = "date" if self.number_policy == "dates" else self._kind(counted)
        return self._are_plain_dates(counted["value"]) if kind == "date" else kind == "numerical"

    def _are_plain_dates(self, values: pl.Series) -> bool:
        """Whether one number can hold each date: not if offsets in the text shift its clock."""
        self.found_format = self.date_format or find_format(values, self.missing_values)
        if self.found_format is None:
            return False
        times = read_times(values, self.found_format, self.missing_values)
        self._is_clock = is_date_type(values.dtype) or times.wall.equals(times.instant)
        return self._is_clock


def needed_columns(schema: pl.Schema, config: Config) -> list[str]:
    """Columns that must be read, in the order of the table.

    Raises:
        SchemaError: for a column of structs or bytes, or lists that are not a field.
    """
    wanted = {config.data.target, config.data.weight, config.split.group, *candidate_names(schema.names(), config)}
    if config.split.method in BY_COLUMN:
        wanted.add(config.split.column)
    names = [name for name in schema.names() if name in wanted]
    for name in names:
        canonical(pl.Series(name, [], dtype=schema[name]))
        if is_list(schema[name]) and name in (config.data.target, config.data.weight, *config.split.columns):
            raise SchemaError(
                f"target, weight and split need one value per row; column {name!r} has lists. Name another"
            )
    return names


def n_threads() -> int:
    """Threads for work on columns."""
    return min(os.cpu_count() or 1, 8)


class TableInterner:
    """Turns the rows of a table, chunk by chunk, into a coded table.

    Args:
        schema: columns of the table and their types.
        config: settings.
        cells: where the codes go, and already are if this resumes; in memory by default.
        sizes: when the modes of columns are decided.
        states: `ColumnInterner.state` of each needed column, to resume from there.
        texts: the texts known at that point, by the position of the column.

    Raises:
        SchemaError: for a column of structs or bytes, or lists that are not a field.
    """

    def __init__(
        self,
        schema: pl.Schema,
        config: Config,
        *,
        cells: Cells | None = None,
        sizes: Sizes = DEFAULT_SIZES,
        states: Sequence[dict[str, Any]] | None = None,
        texts: Mapping[int, pl.Series] | None = None,
    ) -> None:
        self.names = needed_columns(schema, config)
        self.cells: Cells = MemoryCells() if cells is None else cells
        self.sizes = sizes
        special = {config.data.target, config.data.weight, *config.split.columns}
        self.interners = [
            ColumnInterner(
                name,
                schema[name],
                sizes=sizes,
                missing_values=config.data.missing_values,
                may_skip=name not in special and may_skip(name, config.data),
                number_policy=_number_policy(name, config),
                date_format=config.data.date_formats.get(name),
                state=states[i] if states else None,
                texts=(texts or {}).get(i),
            )
            for i, name in enumerate(self.names)
        ]

    def add(self, rows: pl.DataFrame, threads: ThreadPoolExecutor) -> None:
        """Intern the next rows, with exactly the columns `names`."""
        for chunk in self._chunks(rows):
            first_rows = [self.cells.n_rows] * len(self.interners)
            self.cells.append(list(threads.map(ColumnInterner.take, self.interners, chunk, first_rows)))

    def table(self) -> CodedTable:
        """The coded table of all rows added. This frees the dictionaries, so nothing can be added afterwards."""
        columns = {}
        for place, interner in enumerate(self.interners):
            values = pl.Series([]) if interner.mode == "skipped" else interner.values()
            numbers = interner.numbers(values) if interner.mode == "numbers" else pl.Series([], dtype=pl.Float64)
            columns[interner.name] = CodedColumn(
                name=interner.name,
                place=place,
                mode=interner.mode,
                values=values,
                numbers=numbers.fill_null(np.nan).to_numpy(),
                reason=interner.reason,
                missing_values=interner.missing_values,
                date_format=interner.found_format,
                is_date=interner.is_date,
            )
            interner.dictionary = Dictionary()  # frees the numbering
        return CodedTable(cells=self.cells, columns=columns, sizes=self.sizes)

    def _chunks(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Rows cut at multiples of the chunk size, the only places where modes change."""
        at = 0
        while at < len(rows):
            n_rows = self.sizes.chunk_rows - self.cells.n_rows % self.sizes.chunk_rows
            yield rows.slice(at, n_rows)
            at += n_rows


def code_table(rows: pl.DataFrame, config: Config, sizes: Sizes = DEFAULT_SIZES) -> CodedTable:
    """A table in memory as a coded table in memory."""
    interner = TableInterner(rows.schema, config, sizes=sizes)
    with ThreadPoolExecutor(n_threads()) as threads:
        interner.add(rows.select(interner.names), threads)
    return interner.table()


def _number_policy(name: str, config: Config) -> NumberPolicy:
    data, split = config.data, config.split
    if name == data.weight:
        return "always"
    if name == data.target:
        return "always" if data.task in ("auto", "regression") else "never"
    if name in split.columns:
        return "times" if split.method == "time" and name not in (data.fields or ()) else "never"
    kind = known_kind(name, data)
    if kind is None and name not in (*data.shares, *data.shares.values()):
        return "measure"
    policies: dict[Kind | None, NumberPolicy] = {"numerical": "always", "date": "dates"}
    return policies.get(kind, "never")

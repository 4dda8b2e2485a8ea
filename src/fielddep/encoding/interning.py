"""Interning: each different value of a column gets a small number the first time it is seen.

So text is hashed once, and all later work is on numbers: counting, splitting, encoding. A column is kept in one of
three ways:

- *codes*: 0 for null, then 1 onwards in order of first appearance. The different values stay in memory.
- *numbers*: a measure with very many different numbers is kept as the numbers themselves from there on.
- *skipped*: a column with another value in each of very many rows teaches nothing.
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

from fielddep.config.settings import Config
from fielddep.encoding.coded import DEFAULT_SIZES, Array, Cells, CodedColumn, CodedTable, MemoryCells, Mode, Sizes
from fielddep.encoding.schema import candidate_names, infer_kind, may_skip, skip_reason
from fielddep.encoding.times import time_numbers
from fielddep.encoding.values import as_number, canonical, first_not_a_number
from fielddep.errors import SplitError

log = logging.getLogger(__name__)

NULL_CODE = 0

NumberPolicy = Literal["never", "measure", "always", "times"]


class Dictionary:
    """The different texts of a column, numbered from 1 in order of first appearance; null is 0."""

    def __init__(self) -> None:
        self._dtype = pl.Categorical(pl.Categories.random())
        # Polars forgets a numbering once no column of it is alive.
        self._alive = pl.Series([""], dtype=pl.String).head(0).cast(self._dtype)
        self.n_values = 0

    def codes(self, texts: pl.Series) -> npt.NDArray[np.uint32]:
        """The number of every text; new texts are numbered."""
        numbered = texts.cast(self._dtype)
        if not self.n_values:
            self._alive = numbered.head(1)
        physical = numbered.to_physical().cast(pl.UInt32)
        highest = physical.max()
        if isinstance(highest, int):
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
    """A text of every value from which `from_text` gets the value back, bit by bit."""
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
    plain = texts
    if dtype == pl.Boolean:
        plain = texts.cast(pl.UInt8)
    elif dtype.is_temporal():
        plain = texts.cast(pl.Int64)
    column: pl.Series = plain.cast(pl.Categorical() if isinstance(dtype, pl.Enum) else dtype)
    return column


class ColumnInterner:
    """Turns one column, chunk after chunk, into codes or numbers.

    Args:
        name: the column.
        dtype: its type in the table.
        sizes: when a column is judged.
        missing_values: texts that mean missing.
        may_skip: whether it may be skipped as useless.
        number_policy: whether it may be kept as numbers: "never", if it looks like a "measure", "always" that its
            values are numbers, or, for the column of a split by time, as "times".
        state: what `state` gave, to resume from there.
        texts: the texts known by then.
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
        """Why the column is skipped."""
        self._judged: bool = known.get("judged", False)
        self._judge_numbers_at: int = known.get("judge_numbers_at", sizes.max_distinct)
        self._is_clock: bool = known.get("is_clock", False)
        self._warn_at: int = known.get("warn_at", sizes.many_distinct)

    def state(self) -> dict[str, Any]:
        """What must be known to resume, as plain values."""
        return {
            "mode": self.mode,
            "reason": self.reason,
            "judged": self._judged,
            "judge_numbers_at": self._judge_numbers_at,
            "is_clock": self._is_clock,
            "warn_at": self._warn_at,
        }

    def take(self, column: pl.Series, first_row: int) -> Array | None:
        """Codes or numbers of the next rows; None for a column that is skipped."""
        if self.mode == "codes":
            codes = self.dictionary.codes(to_text(column))
            if (first_row + len(column)) % self.sizes.chunk_rows == 0:
                self._choose_mode(first_row + len(column))
            return codes
        if self.mode == "numbers":
            return self.numbers(column, first_row).fill_null(np.nan).to_numpy()
        return None

    def numbers(self, column: pl.Series, first_row: int = 0) -> pl.Series:
        """Values as numbers; null for missing."""
        if self.number_policy != "times":
            return as_number(column, self.missing_values, first_row=first_row)
        numbers, is_clock = time_numbers(column)
        if is_clock != self._is_clock and numbers.null_count() < len(numbers):
            raise SplitError(
                f"split.column {self.name!r} must hold times of one format; from row {first_row} (counted from 0) on "
                "dates and plain numbers are mixed; convert them"
            )
        return numbers

    def values(self) -> pl.Series:
        """Different values by code, in the column's own type; null first."""
        texts = self.dictionary.texts()
        null = pl.Series([None], dtype=pl.String)
        return from_text(pl.concat([null, texts.alias("")]), self.dtype).alias(self.name)

    def forget(self) -> None:
        """Free the dictionary's numbering."""
        self.dictionary = Dictionary()

    def _choose_mode(self, n_rows: int) -> None:
        """Decide how the rows to come are kept."""
        if self.may_skip and not self._judged and n_rows >= self.sizes.judged_rows:
            self._judged = True
            if self.dictionary.n_values == n_rows:
                self.reason = self._skip_reason()
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
            "column %r has %s different values in the first %s rows, and memory grows with every new one; if it is not "
            "needed, data.exclude drops it",
            self.name,
            f"{n_values:,}",
            f"{n_rows:,}",
        )

    def _skip_reason(self) -> str | None:
        values = self.values().slice(1)
        counted = pl.DataFrame({"value": values, "n": np.ones(len(values), dtype=np.int64)})
        kind = infer_kind(values, self.missing_values, counted)
        return skip_reason(counted.with_columns(value=canonical(values, self.missing_values)), kind)

    def _is_measure(self, n_rows: int) -> bool:
        values = self.values().slice(1)
        if self.number_policy == "times":
            self._is_clock = time_numbers(values)[1]
            return True
        if self.number_policy == "always":
            return first_not_a_number(values, self.missing_values) is None
        # The kind depends on the sum of the counts only, which is known.
        counts = np.ones(len(values), dtype=np.int64)
        counts[-1] += n_rows - len(values)
        counted = pl.DataFrame({"value": values, "n": counts})
        return infer_kind(values, self.missing_values, counted) == "numerical"


def needed_columns(schema: pl.Schema, config: Config) -> list[str]:
    """Columns that must be read, in the table's order.

    Raises:
        SchemaError: for a column of lists, structs or bytes.
    """
    wanted = {config.data.target, config.data.weight, *candidate_names(schema.names(), config)}
    if config.split.method in ("group", "time", "column"):
        wanted.add(config.split.column)
    names = [name for name in schema.names() if name in wanted]
    for name in names:
        canonical(pl.Series(name, [], dtype=schema[name]))
    return names


def n_threads() -> int:
    """Threads for work on columns."""
    return min(os.cpu_count() or 1, 8)


class TableInterner:
    """Turns the rows of a table, chunk after chunk, into a coded table.

    Args:
        schema: columns of the table and their types.
        config: settings.
        cells: where the codes go, and perhaps are already; in memory by default.
        sizes: when columns are judged.
        states: what `ColumnInterner.state` gave for each needed column, to resume from there.
        texts: the texts known by then, by the column's position.

    Raises:
        SchemaError: for a column of lists, structs or bytes.
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
        self.interners = [
            ColumnInterner(
                name,
                schema[name],
                sizes=sizes,
                missing_values=config.data.missing_values,
                may_skip=name not in _special(config) and may_skip(name, config.data),
                number_policy=_number_policy(name, config),
                state=states[i] if states else None,
                texts=(texts or {}).get(i),
            )
            for i, name in enumerate(self.names)
        ]

    def add(self, rows: pl.DataFrame, threads: ThreadPoolExecutor) -> None:
        """Intern the next rows, whose columns must be those of `names`."""
        for chunk in self._chunks(rows):
            first_rows = [self.cells.n_rows] * len(self.interners)
            self.cells.append(list(threads.map(ColumnInterner.take, self.interners, chunk, first_rows)))

    def table(self) -> CodedTable:
        """The coded table of all rows added; frees the memory of the interning, so nothing can be added after it."""
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
            )
            interner.forget()
        return CodedTable(cells=self.cells, columns=columns, sizes=self.sizes)

    def _chunks(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Rows cut at multiples of the chunk size, the only places where columns are judged."""
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


def _special(config: Config) -> set[str | None]:
    return {config.data.target, config.data.weight, config.split.column}


def _number_policy(name: str, config: Config) -> NumberPolicy:
    data, split = config.data, config.split
    if name == data.weight:
        return "always"
    if name == data.target:
        return "always" if data.task in ("auto", "regression") else "never"
    if name == split.column:
        return "times" if split.method == "time" and name not in (data.fields or ()) else "never"
    if name in data.kinds:
        return "always" if data.kinds[name] == "numerical" else "never"
    return "measure"

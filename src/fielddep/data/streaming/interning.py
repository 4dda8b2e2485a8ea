"""Interning: each different value of a column gets a small number the first time it is seen.

So text is hashed once, and everything after works on numbers: counting, splitting, encoding. A column is kept in one of
three ways:

- *codes*: 0 for null, then 1 onwards in order of first appearance. The different values stay in memory.
- *numbers*: a measure of more than `MAX_DISTINCT` different numbers is kept as the numbers themselves from there on.
- *left out*: a column with another value in each of the first `JUDGED_ROWS` rows teaches nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.data.kinds import infer_kind
from fielddep.data.schema import why_useless
from fielddep.data.splits import time_numbers
from fielddep.data.values import as_number, canonical, first_not_a_number
from fielddep.errors import SplitError

log = logging.getLogger(__name__)

MAX_DISTINCT = 2_000_000
"""Different numbers of a measure that are kept one by one."""
JUDGED_ROWS = 1 << 20
"""Rows after which a column with another value in every row is left out."""
MANY_DISTINCT = 8_000_000
"""Different values of a column of which, and of whose every doubling, the user is warned."""
NULL_CODE = 0

Cells: TypeAlias = npt.NDArray[Any]
"""Codes (unsigned) or numbers (float64) of rows."""
Mode = Literal["codes", "numbers", "left out"]
MayNumber = Literal["never", "measure", "always", "times"]


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
    """Turns one column, portion after portion, into codes or numbers.

    Args:
        name: the column.
        dtype: its type in the table.
        missing_values: texts that mean missing.
        may_leave_out: whether it may be left out as useless.
        may_number: whether it may be kept as numbers: "never", if it looks like a "measure", "always" that its
            values are numbers, or, for the column of a split by time, as "times".
        state: what `state` gave, with the texts known by then, to go on from there.
    """

    def __init__(
        self,
        name: str,
        dtype: pl.DataType,
        *,
        missing_values: Iterable[str] = ("",),
        may_leave_out: bool = False,
        may_number: MayNumber = "never",
        state: dict[str, Any] | None = None,
        texts: pl.Series | None = None,
    ) -> None:
        self.name, self.dtype = name, dtype
        self.missing_values = tuple(missing_values)
        self.may_leave_out, self.may_number = may_leave_out, may_number
        self.dictionary = Dictionary()
        if texts is not None and len(texts):
            self.dictionary.codes(texts)
        known = state or {}
        self.mode: Mode = known.get("mode", "codes")
        self.reason: str | None = known.get("reason")
        """Why the column is left out."""
        self._judged: bool = known.get("judged", False)
        self._judge_numbers_at: int = known.get("judge_numbers_at", MAX_DISTINCT)
        self._is_clock: bool = known.get("is_clock", False)
        self._warn_at: int = known.get("warn_at", MANY_DISTINCT)

    def state(self) -> dict[str, Any]:
        """What must be known to go on, as plain values."""
        return {
            "mode": self.mode,
            "reason": self.reason,
            "judged": self._judged,
            "judge_numbers_at": self._judge_numbers_at,
            "is_clock": self._is_clock,
            "warn_at": self._warn_at,
        }

    def take(self, column: pl.Series, first_row: int) -> Cells | None:
        """Codes or numbers of the next rows; None for a column that is left out."""
        if self.mode == "codes":
            codes = self.dictionary.codes(to_text(column))
            self._judge(first_row + len(column))
            return codes
        if self.mode == "numbers":
            return self.numbers(column, first_row).fill_null(np.nan).to_numpy()
        return None

    def numbers(self, column: pl.Series, first_row: int = 0) -> pl.Series:
        """Values as numbers; null for missing."""
        if self.may_number != "times":
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

    def _judge(self, n_rows: int) -> None:
        """Decide, for the rows to come, whether it is worth to go on with codes."""
        if self.may_leave_out and not self._judged and n_rows >= JUDGED_ROWS:
            self._judged = True
            if self.dictionary.n_values == n_rows:
                self.reason = self._why_useless()
                self.mode = "left out" if self.reason else "codes"
        if self.may_number != "never" and self.mode == "codes" and self.dictionary.n_values > self._judge_numbers_at:
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

    def _why_useless(self) -> str | None:
        values = self.values().slice(1)
        counted = pl.DataFrame({"value": values, "n": np.ones(len(values), dtype=np.int64)})
        kind = infer_kind(values, self.missing_values, counted)
        return why_useless(counted.with_columns(value=canonical(values, self.missing_values)), kind)

    def _is_measure(self, n_rows: int) -> bool:
        values = self.values().slice(1)
        if self.may_number == "times":
            self._is_clock = time_numbers(values)[1]
            return True
        if self.may_number == "always":
            return first_not_a_number(values, self.missing_values) is None
        # The kind depends on the sum of the counts only, which is known.
        counts = np.ones(len(values), dtype=np.int64)
        counts[-1] += n_rows - len(values)
        counted = pl.DataFrame({"value": values, "n": counts})
        return infer_kind(values, self.missing_values, counted) == "numerical"

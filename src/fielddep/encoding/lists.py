"""Lists: several values in one cell, as a list type or as text with a separator, and free text as a list of its words.

Each different cell is split once; what follows works on the values of all cells in one long column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.one_row import NeedsColumnsError, canonical_values
from fielddep.encoding.ragged import Offsets, starts_of
from fielddep.encoding.values import LIST_SEPARATOR, canonical, is_list

ListKind = Literal["list", "text"]

CLEAR_SEPARATORS = ("|", ";")
"""Separators that hardly occur in a text that is one value."""
SEPARATORS = (*CLEAR_SEPARATORS, ",")
WORD = r"[\p{L}\p{N}]+"
_ASCII_WORD = re.compile("[a-z0-9]+")

_MIN_CELLS = 20
_MOST = 0.5
_MAX_VALUE_CHARACTERS = 40
_MIN_REPEATS = 2.0
_MUCH_MORE = 3.0
_MIN_WORDS = 4
_NEARLY_ALL = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitCells:
    """The values of some cells: cell c has those from `offsets[c]` to `offsets[c + 1]`; none if it is empty."""

    values: pl.Series
    offsets: Offsets

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Values of each cell."""
        return np.diff(self.offsets)


def split_cells(
    column: pl.Series, kind: ListKind, separator: str | None, missing_values: Iterable[str] = ("",)
) -> SplitCells:
    """Canonical texts of the values of every cell, without missing ones.

    Args:
        column: lists, or texts.
        kind: list, or text for the words of a text in lower case.
        separator: what stands between the values of a text; None if a text is one value.
        missing_values: texts that mean missing, as a cell and as a value of a list.

    Example:
        >>> cells = split_cells(pl.Series(["a|b", None, "b || 5.0"]), "list", "|")
        >>> cells.values.to_list(), cells.offsets.tolist()
        (['a', 'b', 'b', '5'], [0, 2, 2, 4])
    """
    missing = tuple(missing_values)
    cells = canonical(column, missing)
    if kind == "text":
        pieces = cells.str.to_lowercase().str.extract_all(WORD)
    else:
        between = LIST_SEPARATOR if is_list(column.dtype) or separator is None else separator
        pieces = cells.str.split(between)
    lengths = pieces.list.len().fill_null(0).to_numpy()
    flat: pl.Series = pieces.filter(pl.Series(lengths > 0)).explode()
    if kind == "text":
        return SplitCells(values=flat.alias(column.name), offsets=starts_of(lengths))
    if between != LIST_SEPARATOR:
        flat = flat.str.strip_chars(" ")
    values = canonical(flat.alias(column.name), missing)
    cell_V = np.repeat(np.arange(len(lengths)), lengths)[values.is_not_null().to_numpy()]
    known = np.bincount(cell_V, minlength=len(lengths))
    return SplitCells(values=values.drop_nulls(), offsets=starts_of(known))


def split_value(value: object, kind: ListKind, separator: str | None, missing: frozenset[str]) -> list[str]:
    """`split_cells` for one Python value.

    Raises:
        NeedsColumnsError: only columns can handle the value exactly.
    """
    if isinstance(value, (list, tuple)):
        if kind == "text":
            raise NeedsColumnsError
        return [text for text in canonical_values(value, missing) if text is not None]
    cell = canonical_values([value], missing)[0]
    if cell is None:
        return []
    if kind == "text":
        if not cell.isascii():  # Python and Polars may know other versions of Unicode
            raise NeedsColumnsError
        return _ASCII_WORD.findall(cell.lower())
    pieces = cell.split(LIST_SEPARATOR) if separator is None else [piece.strip(" ") for piece in cell.split(separator)]
    return [text for text in canonical_values(pieces, missing) if text is not None]


def list_separator(counted: pl.DataFrame, missing_values: Iterable[str]) -> tuple[str, bool] | None:
    """The separator of a column of texts that look like lists, and whether that is clear; None if they do not.

    Most cells must hold it, and the values must be short and repeat. It is clear for | and ; if the values repeat much
    more often than the cells, number far fewer, and not all cells have the same number of them, as codes do.

    Args:
        counted: `distinct_values` of the column.
        missing_values: texts that mean missing.
    """
    if counted["value"].dtype != pl.String:
        return None
    cells = counted.with_columns(value=canonical(counted["value"], missing_values)).drop_nulls("value")
    n_rows = int(cells["n"].sum())
    for separator in SEPARATORS:
        holds = cells["value"].str.contains(separator, literal=True)
        if n_rows < _MIN_CELLS or int(cells["n"].filter(holds).sum()) <= _MOST * n_rows:
            continue
        split = split_cells(cells["value"], "list", separator, missing_values)
        n_values, n_found = split.values.n_unique(), int(cells["n"].to_numpy() @ split.lengths)
        repeats = n_found / max(n_values, 1)
        if repeats < _MIN_REPEATS or not _are_short(split.values, separator):
            continue
        far_fewer = 2 * n_values <= len(cells) and repeats >= _MUCH_MORE * n_rows / len(cells)
        several = len(np.unique(split.lengths)) > 1
        return separator, separator in CLEAR_SEPARATORS and far_fewer and several
    return None


def _are_short(values: pl.Series, separator: str) -> bool:
    if int(values.str.len_chars().max() or 0) > _MAX_VALUE_CHARACTERS:  # type: ignore[arg-type]  # a number
        return False
    # A comma followed by words is prose, or a name.
    return separator in CLEAR_SEPARATORS or not values.str.contains(" ", literal=True).any()


def looks_like_text(counted: pl.DataFrame, missing_values: Iterable[str]) -> bool:
    """Whether a column is free text: nearly all cells differ and have several words, and words occur again and again.

    Times and keys such as 550e8400-e29b-41d4-a716 have parts too, but most have no letter, or occur once.
    """
    if counted["value"].dtype != pl.String:
        return False
    cells = counted.with_columns(value=canonical(counted["value"], missing_values)).drop_nulls("value")
    n_rows = int(cells["n"].sum())
    if n_rows < _MIN_CELLS or len(cells) < _NEARLY_ALL * n_rows:
        return False
    words = split_cells(cells["value"], "text", None, missing_values).values
    if len(words) < _MIN_WORDS * len(cells):
        return False
    has_letter = words.str.contains(r"\p{L}").sum()
    return has_letter > _MOST * len(words) and words.is_duplicated().sum() > _MOST * len(words)

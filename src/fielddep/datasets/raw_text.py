"""Raw text: the lines of small published files as columns of text; a malformed line is refused by its number."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from fielddep.data.text_structure import check_text, records
from fielddep.datasets.raw_files import FoundFile
from fielddep.errors import TableError

LINE = "line"
"""Column of line numbers, from 1."""
_TEXT, _CELLS = "text", "cells"
_LONGEST_SHOWN = 60


def delimited_table(file: FoundFile, delimiter: str, columns: Sequence[str]) -> pl.DataFrame:
    """Delimited text with a header, every column as text.

    Args:
        file: the file.
        delimiter: one character.
        columns: columns that must be there, in any order and among others.

    Raises:
        TableError: a column is lacking, a row is ragged, or the text is no UTF-8.
    """
    data = file.read()
    header = data.split(b"\n", 1)[0].decode("utf-8", errors="replace").rstrip("\r").removeprefix("\ufeff")
    names = header.split(delimiter)
    lacking = [name for name in columns if name not in names]
    if lacking:
        raise TableError(
            f"{file}, line 1: expected the column names {', '.join(columns)}; {', '.join(lacking)} not found in "
            f"{_shown(header)!r}; download the file again"
        )
    rows = list(records(Path(str(file)), io.BytesIO(data), delimiter, len(names)))[1:]
    if not rows:
        raise TableError(f"{file} has column names but no rows; download it again")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def split_lines(file: FoundFile, separator: str, names: Sequence[str], *, ignored: int = 0) -> pl.DataFrame:
    """The cells of lines without a header, as text, beside the number of the line; blank lines are left out.

    Args:
        file: the file.
        separator: text between two cells.
        names: names of the cells.
        ignored: how many cells more a line may have, which are dropped.

    Raises:
        TableError: a line has fewer or more cells, the file is empty, or the text is no UTF-8.
    """
    data = file.read()
    check_text(Path(str(file)), data, 1)
    lines = pl.read_lines(data, row_index_name=LINE, row_index_offset=1, name=_TEXT) if data.strip() else None
    if lines is None:
        raise TableError(f"{file} is empty; expected lines of {len(names)} cells ({', '.join(names)})")
    lines = lines.with_columns(pl.col(_TEXT).str.strip_chars_end("\r ")).filter(pl.col(_TEXT) != "")
    lines = lines.with_columns(pl.col(_TEXT).str.split(separator).alias(_CELLS))
    width = pl.col(_CELLS).list.len()
    bad = lines.filter(~width.is_between(len(names), len(names) + ignored)).head(1)
    if len(bad):
        raise TableError(
            f"{file}, line {bad[LINE][0]}: expected {len(names)} cells ({', '.join(names)}) with {separator!r} between "
            f"them, found {len(bad[_CELLS][0])}: {_shown(bad[_TEXT][0])!r}; correct the line"
        )
    return lines.select(LINE, *(pl.col(_CELLS).list.get(i).alias(name) for i, name in enumerate(names)))


def refuse_cells(file: FoundFile, lines: pl.DataFrame, column: str, pattern: str, expected: str) -> None:
    """Refuse lines with a cell that does not match a pattern as a whole.

    Raises:
        TableError: names the first such line.
    """
    bad = lines.filter(~pl.col(column).str.contains(f"^(?:{pattern})$")).head(1)
    if len(bad):
        raise TableError(
            f"{file}, line {bad[LINE][0]}: expected {expected} as {column}, found {_shown(bad[column][0])!r}; correct "
            "the line"
        )


def read_libfm(files: Sequence[FoundFile], target: str, fields: Sequence[str]) -> pl.DataFrame:
    """Rows of libfm files one behind the other: the place of a token tells its field, its index is the value.

    Args:
        files: lines of a label (1, -1 or 0) and one token `index:1` a field.
        target: name for the label, which becomes 1 or 0.
        fields: names of the tokens in order.

    Raises:
        TableError: a line is malformed.
    """
    tables = []
    for file in files:
        lines = split_lines(file, " ", (target, *fields))
        refuse_cells(file, lines, target, r"\+?1|-1|0", "a label 1, -1 or 0")
        for field in fields:
            refuse_cells(file, lines, field, r"\d+:1", "a token index:1")
        is_positive = pl.col(target).is_in(["1", "+1"])
        tables.append(lines.select(pl.col(fields).str.strip_suffix(":1"), is_positive.cast(pl.Int8).alias(target)))
    return pl.concat(tables)


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."

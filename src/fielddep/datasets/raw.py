"""Raw files of a data set: where they are, and how they become rows.

Small files are read completely, from a folder or a zip archive, and a malformed line is refused with its number. Large
files must be unpacked. They are streamed, and `derive_rows` computes labels, drops columns and checks cells on the way,
so encoding them takes one pass and bounded memory, and can be resumed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from fielddep.errors import TableError
from fielddep.tables.delimited import Place, Rows, open_delimited
from fielddep.tables.row_stream import Reader, RowStream, delimited_stream
from fielddep.tables.text import check_text, scratch_file
from fielddep.wording import format_bytes


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """A published file: its name, its approximate size when unpacked, and other names that it may have."""

    name: str
    n_bytes: int
    other_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{' or '.join((self.name, *self.other_names))} (about {format_bytes(self.n_bytes)})"


@dataclass(frozen=True, kw_only=True)
class LocatedFile:
    """A raw file that was found: a file, or the member of a zip archive."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path if self.member is None else self.path / self.member)

    def read(self) -> bytes:
        """All its bytes.

        Raises:
            TableError: it cannot be read.
        """
        try:
            if self.member is None:
                return self.path.read_bytes()
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(self.member)
        except (OSError, zipfile.BadZipFile) as error:
            raise TableError(f"{self} cannot be read: {error}; download it again") from error


RawFiles = Mapping[str, LocatedFile]
"""Raw files that were found, by their name in the recipe."""


def find_raw_files(
    wanted: Sequence[RawFile], folder: Path, *, subfolders: Sequence[str] = (), archives: Sequence[str] = ()
) -> dict[str, LocatedFile]:
    """Find the wanted files in a folder, in its subfolders, and anywhere inside its zip archives.

    Raises:
        TableError: an archive is damaged.
    """
    folders = [folder, *(folder / name for name in subfolders)]
    found: dict[str, LocatedFile] = {}
    for file in wanted:
        names = (file.name, *file.other_names)
        places = [place / name for place in folders for name in names if (place / name).is_file()]
        if places:
            found[file.name] = LocatedFile(path=places[0])
    for archive, members in _members([folder / name for name in archives]):
        for file in wanted:
            member = members.get(file.name)
            if member is not None:
                found.setdefault(file.name, LocatedFile(path=archive, member=member))
    return found


def _members(archives: Sequence[Path]) -> Iterator[tuple[Path, dict[str, str]]]:
    """Every archive that exists, with its members by file name."""
    for archive in archives:
        if not archive.is_file():
            continue
        try:
            with zipfile.ZipFile(archive) as opened:
                names = [name for name in opened.namelist() if not name.startswith("__MACOSX")]
        except (OSError, zipfile.BadZipFile) as error:
            raise TableError(f"expected a zip archive at {archive}, but {error}; download it again") from error
        yield archive, {name.rpartition("/")[2]: name for name in names}


LINE = "line"
"""Column of line numbers, from 1."""
_TEXT, _CELLS = "text", "cells"
_LONGEST_SHOWN = 60


def delimited_table(file: LocatedFile, delimiter: str, columns: Sequence[str]) -> pl.DataFrame:
    """Delimited text with a header, every column as text.

    Args:
        file: the file.
        delimiter: one character.
        columns: columns that must be there, in any order and among others.

    Raises:
        TableError: a column is missing, a row is ragged, or the text is not UTF-8.
    """
    copy = None
    if file.member is not None:
        copy = scratch_file(".csv")
        copy.write_bytes(file.read())
    opened = open_delimited(Path(str(file)), delimiter=delimiter, source=copy)
    missing = [name for name in columns if name not in opened.names]
    if missing:
        raise TableError(
            f"{file}, line 1: expected the column names {', '.join(columns)}; {', '.join(missing)} not found in "
            f"{_shown(delimiter.join(opened.names))!r}. Download the file again"
        )
    stream = delimited_stream([opened], sources=())
    return pl.concat(rows for rows, _ in stream.chunks(opened.names))


def split_lines(file: LocatedFile, separator: str, names: Sequence[str], *, ignored: int = 0) -> pl.DataFrame:
    """The cells of lines without a header, as text, next to the number of the line; blank lines are skipped.

    Args:
        file: the file.
        separator: text between two cells.
        names: names of the cells.
        ignored: how many more cells a line may have; they are dropped.

    Raises:
        TableError: a line has fewer or more cells, the file is empty, or the text is not UTF-8.
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


def refuse_cells(file: LocatedFile, lines: pl.DataFrame, column: str, pattern: str, expected: str) -> None:
    """Refuse lines whose cell as a whole does not match a pattern.

    Raises:
        TableError: names the first such line.
    """
    bad = lines.filter(_mismatch(column, pattern)).head(1)
    if len(bad):
        raise TableError(
            f"{file}, line {bad[LINE][0]}: expected {expected} as {column}, found {_shown(bad[column][0])!r}; correct "
            "the line"
        )


def read_libfm(files: Sequence[LocatedFile], target: str, fields: Sequence[str]) -> pl.DataFrame:
    """Rows of libfm files, one after another: the position of a token names its field, its index is the value.

    Args:
        files: lines of a label (1, -1 or 0) and one token `index:1` per field.
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


@dataclass(frozen=True, kw_only=True)
class CellRule:
    """What the cells of raw text columns must look like.

    Attributes:
        columns: the columns.
        pattern: regular expression that a complete cell must match.
        expected: the same in words, for messages.
    """

    columns: tuple[str, ...]
    pattern: str
    expected: str


def derive_rows(
    stream: RowStream, columns: Mapping[str, pl.Expr], rules: Sequence[CellRule] = (), *, has_header: bool = True
) -> RowStream:
    """The rows of a stream with other columns.

    Args:
        stream: delimited text, one reader per file.
        columns: every column of the new stream, as an expression that works row by row.
        rules: what raw cells must look like, whichever columns are read.
        has_header: whether the first line of a file names the columns; for the line numbers in messages.
    """
    raw = pl.LazyFrame(schema=stream.schema)
    schema = raw.select(expr.alias(name) for name, expr in columns.items()).collect_schema()
    readers = tuple(
        _derived(reader, columns, _Check(name=source.name, rules=rules, has_header=has_header))
        for reader, source in zip(stream.readers, stream.sources, strict=True)
    )
    return replace(stream, schema=schema, readers=readers)


def _derived(reader: Reader, columns: Mapping[str, pl.Expr], check: _Check) -> Reader:
    checked = [column for rule in check.rules for column in rule.columns]

    def read(wanted: Sequence[str], place: Place) -> Rows:
        exprs = [columns[column].alias(column) for column in wanted]
        roots = [root for expr in exprs for root in expr.meta.root_names()]
        for rows, behind in reader(list(dict.fromkeys([*roots, *checked])), place):
            check.refuse(rows, place, behind)
            yield rows.select(exprs), behind
            place = behind

    return read


@dataclass(frozen=True, kw_only=True)
class _Check:
    """The rules of one file, for errors that name the line."""

    name: str
    rules: Sequence[CellRule]
    has_header: bool

    def refuse(self, rows: pl.DataFrame, before: Place, behind: Place) -> None:
        """Refuse rows that break a rule."""
        pairs = [(rule, column) for rule in self.rules for column in rule.columns]
        broken = rows.select(_mismatch(column, rule.pattern).arg_true().first().alias(column) for rule, column in pairs)
        for rule, column in pairs:
            row = broken[column].item()
            if row is not None:
                raise TableError(
                    f"{self.name}, {self._line(row, len(rows), before, behind)}: expected {rule.expected} in column "
                    f"{column}, found {_shown(rows[column][row])!r}; correct the row, or download the file again"
                )

    def _line(self, row: int, n_rows: int, before: Place, behind: Place) -> str:
        """The line of a row; a range if blank lines or line ends within cells make it uncertain."""
        n_header = int(self.has_header and before.offset == 0)
        if behind.line - before.line == n_rows + n_header:
            return f"line {before.line + n_header + row}"
        return f"lines {before.line} to {behind.line - 1}"


def _mismatch(column: str, pattern: str) -> pl.Expr:
    """Whether a cell as a whole does not match a regular expression."""
    return ~pl.col(column).str.contains(f"^(?:{pattern})$")

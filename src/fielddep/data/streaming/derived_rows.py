"""Derived rows: a stream whose columns are expressions over another stream's, and whose raw cells are checked.

So a raw file that is no table yet (a label that must be computed, a column to drop) is encoded in the same pass and
the same memory as one that is, and the encoding can be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from fielddep.data.streaming.delimited_rows import Place
from fielddep.data.streaming.row_stream import Reader, Rows, RowStream
from fielddep.errors import TableError

_LONGEST_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class CellRule:
    """What the cells of raw text columns must look like.

    Attributes:
        columns: the columns.
        pattern: regular expression that a cell must match as a whole.
        expected: the same in words, for messages.
    """

    columns: tuple[str, ...]
    pattern: str
    expected: str

    def broken(self, column: str) -> pl.Expr:
        """Whether a row breaks the rule in a column."""
        return ~pl.col(column).str.contains(f"^(?:{self.pattern})$")


def derive_rows(
    stream: RowStream, columns: Mapping[str, pl.Expr], rules: Sequence[CellRule] = (), *, has_header: bool = True
) -> RowStream:
    """The rows of a stream with other columns.

    Args:
        stream: delimited text, one reader a file.
        columns: every column of the new stream as an expression that works row by row.
        rules: what raw cells must look like, whichever columns are read.
        has_header: whether the first line of a file names the columns, to number the lines in messages.
    """
    raw = pl.LazyFrame(schema=stream.schema)
    schema = raw.select(expr.alias(name) for name, expr in columns.items()).collect_schema()
    readers = tuple(
        _derived(reader, columns, _Check(name=source.name, rules=rules, has_header=has_header))
        for reader, source in zip(stream.readers, stream.sources, strict=True)
    )
    return replace(stream, schema=schema, readers=readers)


def _derived(reader: Reader, columns: Mapping[str, pl.Expr], check: _Check) -> Reader:
    def read(wanted: Sequence[str], place: Place) -> Rows:
        exprs = [columns[column].alias(column) for column in wanted]
        roots = [root for expr in exprs for root in expr.meta.root_names()]
        for rows, behind in reader(list(dict.fromkeys([*roots, *check.columns])), place):
            check.refuse(rows, place, behind)
            yield rows.select(exprs), behind
            place = behind

    return read


@dataclass(frozen=True, kw_only=True)
class _Check:
    """The rules of one file.

    Attributes:
        name: the file.
        rules: what its cells must look like.
        has_header: whether its first line names the columns.
    """

    name: str
    rules: Sequence[CellRule]
    has_header: bool

    @property
    def columns(self) -> list[str]:
        return [column for rule in self.rules for column in rule.columns]

    def refuse(self, rows: pl.DataFrame, before: Place, behind: Place) -> None:
        """Refuse rows that break a rule."""
        pairs = [(rule, column) for rule in self.rules for column in rule.columns]
        found = rows.select(rule.broken(column).any().alias(column) for rule, column in pairs)
        for rule, column in pairs:
            if not found[column].item():
                continue
            row = int(rows.select(rule.broken(column).arg_true().first()).item())
            raise TableError(
                f"{self.name}, {self._line(row, len(rows), before, behind)}: expected {rule.expected} in column "
                f"{column}, found {rows[column][row][:_LONGEST_SHOWN]!r}; correct the row, or download the file again"
            )

    def _line(self, row: int, n_rows: int, before: Place, behind: Place) -> str:
        """The line of a row; a range where blank lines or line ends within cells make it uncertain."""
        n_header = int(self.has_header and before.offset == 0)
        if behind.line - before.line == n_rows + n_header:
            return f"line {before.line + n_header + row}"
        return f"lines {before.line} to {behind.line - 1}"

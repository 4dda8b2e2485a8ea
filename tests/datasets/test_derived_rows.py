"""Files without a header and derived columns: the same rows from every position on, and errors that name the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from fielddep.datasets.raw import CellRule, derive_rows
from fielddep.errors import TableError
from fielddep.tables.delimited import open_delimited, without_header
from fielddep.tables.row_stream import RowStream, delimited_stream
from tests.helpers import raises
from tests.streamed import small_chunks

__all__ = ["small_chunks"]
pytestmark = pytest.mark.usefixtures("small_chunks")

N_ROWS = 400
RULES = (CellRule(columns=("n",), pattern=r"\d+", expected="a number"),)
COLUMNS = {"half": pl.col("n").cast(pl.Int64) // 2, "word": pl.col("word"), "both": pl.col("n") + pl.col("word")}
TEXTS = {
    "plain": "".join(f"{i}\tw{i % 7}\n" for i in range(N_ROWS)),
    "no-end": "".join(f"{i}\tw{i % 7}\n" for i in range(N_ROWS)).rstrip("\n"),
    "windows": "\ufeff" + "".join(f"{i}\tw{i % 7}\r\n" for i in range(N_ROWS)),
    "blank-first": "\n" + "".join(f"{i}\tw{i % 7}\n" for i in range(N_ROWS)),
    "blank-later": "".join(f"{i}\tw{i % 7}\n" + "\n" * (i == 300) for i in range(N_ROWS)),
}


def opened(path: Path) -> RowStream:
    file = without_header(path, ("n", "word"), delimiter="\t")
    return derive_rows(delimited_stream([file]), COLUMNS, RULES, has_header=False)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_rows_from_every_position(tmp_path: Path, name: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fielddep.tables.delimited.CHUNK_BYTES", 700)
    monkeypatch.setattr("fielddep.tables.delimited._CSV_ROWS", 50)
    data = TEXTS[name].encode()
    (tmp_path / "raw").write_bytes(gzip.compress(data) if packed else data)
    stream = opened(tmp_path / "raw")
    assert dict(stream.schema) == {"half": pl.Int64, "word": pl.String, "both": pl.String}
    portions = list(stream.chunks(["both", "half"]))
    assert len(portions) > 3
    whole = pl.concat([rows for rows, _ in portions])
    assert whole.rows() == [(f"{i}w{i % 7}", i // 2) for i in range(N_ROWS)]
    n_rows = 0
    for rows, position in portions:
        n_rows += len(rows)
        rest = [more for more, _ in stream.chunks(["both", "half"], position)]
        assert (pl.concat(rest) if rest else whole.clear()).equals(whole[n_rows:])


@pytest.mark.parametrize("row", [0, 1, 150, N_ROWS - 1])
def test_a_cell_that_breaks_a_rule_is_named(tmp_path: Path, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fielddep.tables.delimited.CHUNK_BYTES", 700)
    lines = TEXTS["plain"].splitlines()
    lines[row] = "-1\tw"
    (tmp_path / "raw").write_text("\n".join(lines))
    with raises(TableError, f"raw, line {row + 1}", "a number", "column n", "'-1'"):
        list(opened(tmp_path / "raw").chunks(["word"]))  # also where the column itself is not read
    (tmp_path / "raw").write_text("\n".join(["n\tword", *lines]))
    headed = derive_rows(delimited_stream([open_delimited(tmp_path / "raw")]), COLUMNS, RULES)
    with raises(TableError, f"raw, line {row + 2}", "column n", "'-1'"):
        list(headed.chunks(["word"]))


def test_a_blank_line_makes_the_line_a_range(tmp_path: Path) -> None:
    lines = TEXTS["plain"].splitlines()
    (tmp_path / "raw").write_text("\n".join([*lines[:2], "", "-1\tw", *lines[3:5]]))
    with raises(TableError, "lines 1 to 6", "column n"):
        list(opened(tmp_path / "raw").chunks(["word"]))


def test_ragged_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("1\ta\n2\tb\tc\n")
    with raises(TableError, "raw, line 2", 2, "n to word", 3):
        list(opened(tmp_path / "raw").chunks(["word"]))
    (tmp_path / "raw").write_text("1\ta\n\n2\n")
    with raises(TableError, "raw, line 3", 2, "n to word", 1):
        list(opened(tmp_path / "raw").chunks(["word"]))
    (tmp_path / "raw").write_text("\n\n")
    with raises(TableError, "raw", "empty", 2, "n to word"):
        opened(tmp_path / "raw")

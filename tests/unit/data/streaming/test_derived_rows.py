"""Files without a header and derived columns: the same rows from every position on, and errors that name the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from fielddep.data.delimited import open_delimited, without_header
from fielddep.data.streaming.derived_rows import CellRule, derive_rows
from fielddep.data.streaming.row_stream import RowStream, delimited_stream
from fielddep.errors import TableError
from tests.unit.data.streamed import small_portions

__all__ = ["small_portions"]
pytestmark = pytest.mark.usefixtures("small_portions")

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
    monkeypatch.setattr("fielddep.data.streaming.delimited_rows.BLOCK_BYTES", 700)
    monkeypatch.setattr("fielddep.data.streaming.delimited_rows._CSV_ROWS", 50)
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
    monkeypatch.setattr("fielddep.data.streaming.delimited_rows.BLOCK_BYTES", 700)
    lines = TEXTS["plain"].splitlines()
    lines[row] = "-1\tw"
    (tmp_path / "raw").write_text("\n".join(lines))
    match = rf"raw, line {row + 1}: expected a number in column n, found '-1'"
    with pytest.raises(TableError, match=match):
        list(opened(tmp_path / "raw").chunks(["word"]))  # also where the column itself is not read
    (tmp_path / "raw").write_text("\n".join(["n\tword", *lines]))
    headed = derive_rows(delimited_stream([open_delimited(tmp_path / "raw")]), COLUMNS, RULES)
    with pytest.raises(TableError, match=match.replace(f"line {row + 1}", f"line {row + 2}")):
        list(headed.chunks(["word"]))


def test_a_blank_line_makes_the_line_a_range(tmp_path: Path) -> None:
    lines = TEXTS["plain"].splitlines()
    (tmp_path / "raw").write_text("\n".join([*lines[:2], "", "-1\tw", *lines[3:5]]))
    with pytest.raises(TableError, match="lines 1 to 6: expected a number in column n"):
        list(opened(tmp_path / "raw").chunks(["word"]))


def test_ragged_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("1\ta\n2\tb\tc\n")
    with pytest.raises(TableError, match=r"raw, line 2: expected 2 cells \(n to word\), found 3: '2\\tb\\tc'"):
        list(opened(tmp_path / "raw").chunks(["word"]))
    (tmp_path / "raw").write_text("1\ta\n\n2\n")
    with pytest.raises(TableError, match=r"raw, line 3: expected 2 cells \(n to word\), found 1: '2'"):
        list(opened(tmp_path / "raw").chunks(["word"]))
    (tmp_path / "raw").write_text("\n\n")
    with pytest.raises(TableError, match=r"raw is empty; expected rows of 2 cells \(n to word\)"):
        opened(tmp_path / "raw")

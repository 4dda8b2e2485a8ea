"""Delimited text with spaces around its cells: stripped if they are layout, kept otherwise and inside quotes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fielddep.tables import delimited
from fielddep.tables.delimited import Place, delimited_rows, open_delimited
from fielddep.tables.row_stream import open_rows, read_table
from tests.helpers import states

NAMES = ["age", "work class", "pay"]
ROWS = [("39", "State gov", "<=50K"), ("50", "?", ">50K"), ("", "", "<=50K")]


def read(tmp_path: Path, text: str, name: str = "t.csv") -> pl.DataFrame:
    path = tmp_path / name
    path.write_text(text, newline="")
    return read_table(path)


@pytest.mark.parametrize(
    "text",
    [
        "age, work class, pay\n39, State gov, <=50K\n50, ?, >50K\n, , <=50K\n",
        "age,work class,pay\n39, State gov, <=50K\n50, ?, >50K\n, , <=50K\n",
        "age, work class, pay\n39,State gov,<=50K\n50,?,>50K\n,,<=50K\n",
        " age , work class , pay \r\n 39,  State gov , <=50K\r\n 50 , ?, >50K \r\n , , <=50K ",
        "age; work class; pay\n39; State gov; <=50K\n50; ?; >50K\n; ; <=50K\n",
        "age\t work class\t pay\n39\t State gov\t <=50K\n50\t ?\t >50K\n\t \t <=50K\n",
        'age, "work class", pay\n39, "State gov" , <=50K\n50, ?, ">50K"\n, "", <=50K',
        "age, work class, pay\n\n39, State gov, <=50K\n50, ?, >50K\n\n, , <=50K\n\n",
    ],
    ids=["both", "rows", "header", "both-sides", "semicolon", "tab", "quoted", "blank-lines"],
)
def test_spaces_are_stripped(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    table = read(tmp_path, text)
    assert table.columns == NAMES
    assert table.rows() == ROWS
    assert len(caplog.records) == 1
    assert states(caplog.text, tmp_path / "t.csv", "spaces")


def test_quoted_text_keeps_its_spaces(tmp_path: Path) -> None:
    text = (
        'a, b, c\n1, " x, y ", 2 \n"3 " , "two \n , lines ", 4\n5, 6" , 7 \n 8, 9"" , "10 "" , "\n" ""11"" ", 12 , ""\n'
    )
    assert read(tmp_path, text).rows() == [
        ("1", " x, y ", "2"),
        ("3 ", "two \n , lines ", "4"),
        ("5", '6"', "7"),
        ("8", '9""', '10 " , '),
        (' "11" ', "12", ""),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a,b,c\n1, x,2\n3,y,4\n",
        "a, b,c\n1,x,2\n",
        "a,b,c\n x,y ,z\n",
        'a,b\n1," x"\n2, y\n',
    ],
    ids=["some-rows", "some-names", "other-spaces", "quoted"],
)
def test_other_spaces_are_kept(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    table = read(tmp_path, text)
    header, *lines = text.replace('"', "").splitlines()
    assert table.columns == header.split(",")
    assert table.rows() == [tuple(line.split(",")) for line in lines]
    assert not caplog.records


@pytest.mark.parametrize("quote", [False, True])
def test_rows_from_every_position(tmp_path: Path, quote: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "CHUNK_BYTES", 700)
    monkeypatch.setattr(delimited, "_CSV_ROWS", 50)
    texts = [f'" x {i}"' if quote and i > 200 else f" x {i} " for i in range(400)]
    (tmp_path / "t.csv").write_text("a, b\n" + "".join(f"{i}, {text}\n" for i, text in enumerate(texts)))
    file = open_delimited(tmp_path / "t.csv")
    chunks = list(delimited_rows(file, ["b", "a"], Place()))
    whole = pl.concat([rows for rows, _ in chunks])
    assert whole["b"].to_list() == [text.strip('"') if '"' in text else text.strip() for text in texts]
    assert len(chunks) > 3
    n_rows = 0
    for rows, place in chunks[:-1]:
        n_rows += len(rows)
        assert pl.concat([more for more, _ in delimited_rows(file, ["b", "a"], place)]).equals(whole[n_rows:])


def test_one_note_for_many_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(9):
        (tmp_path / f"{number}.csv").write_text("a, b\n1, x\n")
    open_rows(tmp_path)
    assert len(caplog.records) == 1

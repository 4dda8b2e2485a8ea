"""Tables in zip archives: one file each, and errors that name the files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import polars as pl
import pytest

from fielddep.config.data import DataConfig
from fielddep.errors import TableError
from fielddep.tables.row_stream import open_rows, read_table
from tests.helpers import raises

TEXT = "a,b\n1,x\n2,y\n"


def columns(path: Path, encoding: str = "utf8") -> dict[str, list[str]]:
    return read_table(path, DataConfig(encoding=encoding)).to_dict(as_series=False)


def write_zip(path: Path, members: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize("name", ["t.csv.zip", "t.CSV.ZIP", "t.zip", "t.txt.zip"])
@pytest.mark.parametrize("text", [TEXT, TEXT + "\n3,z\n"], ids=["plain", "through the csv module"])
def test_one_file(tmp_path: Path, name: str, text: str) -> None:
    members: dict[str, str | bytes] = {
        "folder/": "",
        "folder/any.data": text,
        "__MACOSX/folder/._any.data": "attributes",
    }
    stream = open_rows(write_zip(tmp_path / name, members))
    chunks = list(stream.chunks(["b", "a"]))
    assert pl.concat([rows for rows, _ in chunks])["b"].to_list() == ["x", "y", "z"][: text.count(",") - 1]
    assert {stream.share_read(position) for _, position in chunks} == {None}
    assert not list(stream.chunks(["b"], chunks[-1][1]))


def test_other_text(tmp_path: Path) -> None:
    assert columns(write_zip(tmp_path / "t.tsv.zip", {"t": "a\tb\n1,5\t2,5\n"})) == {"a": ["1,5"], "b": ["2,5"]}
    assert columns(write_zip(tmp_path / "t.jsonl.zip", {"t": '{"a": 1}'})) == {"a": ["1"]}
    latin: dict[str, str | bytes] = {"t": "a,b\né,2\n".encode("latin-1")}
    assert columns(write_zip(tmp_path / "l.csv.zip", latin), encoding="latin-1") == {"a": ["é"], "b": ["2"]}


@pytest.mark.parametrize("name", ["t.csv.zip", "t.zip"])
def test_other_numbers_of_files(tmp_path: Path, name: str) -> None:
    with raises(TableError, name, 2, "one.csv", "two.csv"):
        read_table(write_zip(tmp_path / name, {"one.csv": TEXT, "two.csv": TEXT}))
    with raises(TableError, name, 0):
        read_table(write_zip(tmp_path / name, {"folder/": ""}))


@pytest.mark.parametrize("name", ["t.csv.zip", "t.zip", "t.ffm.zip"])
def test_damaged(tmp_path: Path, name: str) -> None:
    path = write_zip(tmp_path / name, {"t": "".join(f"{i},{i * i}\n" for i in range(9999))})
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:200] + bytes(50) + whole[250:]):
        path.write_bytes(damaged)
        with raises(TableError, name):
            read_table(path)


def test_password(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "t.csv.zip", {"t.csv": TEXT})
    data = bytearray(path.read_bytes())
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + flags] |= 1
    path.write_bytes(data)
    with raises(TableError, "t.csv.zip", "password"):
        read_table(path)

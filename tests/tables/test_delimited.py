"""Delimited text: delimiters, structure errors with their line, encodings and packed files."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.errors import ConfigError, TableError
from fielddep.tables import delimited
from fielddep.tables import text as text_structure
from fielddep.tables.delimited import Place, delimited_rows, find_delimiter, open_delimited
from tests.helpers import raises


@pytest.fixture
def write(tmp_path: Path):
    def _write(content: bytes | str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def read(path: Path, **options: str) -> pl.DataFrame:
    """All rows of a file, every column as text."""
    file = open_delimited(path, **options)
    return pl.concat([rows for rows, _ in delimited_rows(file, file.names, Place())])


def rows(path: Path, **options: str) -> list[tuple[str, ...]]:
    return read(path, **options).rows()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_found(write, delimiter):
    path = write("a,b,c\n1,2,3\n4,5,6\n".replace(",", delimiter))
    table = read(path)
    assert table.columns == ["a", "b", "c"]
    assert table.rows() == [("1", "2", "3"), ("4", "5", "6")]


def test_delimiter_inside_cells_does_not_mislead():
    assert find_delimiter(b"a;b\n1,5;2\n3,5;4\n") == ";"
    assert find_delimiter(b'a,b\n"x;y;z",1\n"p;q;r",2\n') == ","
    assert find_delimiter(b"only\n1\n2\n") is None


def test_wrong_explicit_delimiter_names_the_right_one(write):
    path = write("a;b\n1;2\n")
    with raises(TableError, "one column", "semicolon", "';'"):
        read(path, delimiter=",")


def test_spaces_need_to_be_said(write):
    path = write("a b\n1 2\n3 4\n")
    with raises(TableError, "spaces"):
        read(path)
    assert rows(path, delimiter=" ") == [("1", "2"), ("3", "4")]


@pytest.mark.parametrize("given", ["\\t", "tab", "\t"])
def test_tab_can_be_spelled(write, given):
    assert rows(write("a\tb\n1\t2\n"), delimiter=given) == [("1", "2")]


@pytest.mark.parametrize("given", [",,", "", '"', "\n", "é"])
def test_unusable_delimiter(write, given):
    with raises(ConfigError, "one ASCII character"):
        read(write("a,b\n1,2\n"), delimiter=given)


def test_values_keep_their_text(write):
    path = write("id,zip,e\n9007199254740993,00123,\n1,1.50,NA\n")
    assert rows(path) == [("9007199254740993", "00123", ""), ("1", "1.50", "NA")]


def test_long_value(write):
    long = "x" * 10_000
    assert rows(write(f"a,b\n{long},1\n")) == [(long, "1")]


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        ("a,b,c\n1,2,3\n4,5\n6,7,8\n", 3, 2),
        ("a,b,c\n1,2,3,4\n", 2, 4),
        ('a,b,c\n"x\ny",2,3\n"4,4",5\n', 4, 2),
        ("a,b,c\r\n1,2,3\r\n4\r\n", 3, 1),
        ("a,b,c\n1,2,3\n\n4,5", 4, 2),
        ('a,b,c\n5" pipe,2,3\n7,8\n', 3, 2),
    ],
)
def test_ragged_row_names_its_line(write, content, line, found):
    path = write(content)
    with raises(TableError, "t.csv", f"line {line}", 3, found):
        read(path)


def test_ragged_row_shows_the_start_of_the_line(write):
    with raises(TableError, 1, f"'{'z' * 60}...'"):
        read(write("a,b\n1,2\n" + "z" * 500 + "\n"))


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64])
def test_line_numbers_hold_across_chunks(write, monkeypatch, chunk_bytes):
    monkeypatch.setattr(delimited, "CHUNK_BYTES", chunk_bytes)
    good = 'a,b\n"x ""y""\nz",é\n' + "1,2\n" * 50
    assert len(rows(write(good))) == 51
    with raises(TableError, "line 54", 2, 3):
        read(write(good + "1,2,3\n"))
    with raises(TableError, "line 54", "UTF-8"):
        read(write(good.encode() + b"\xff,2\n"))


def test_quoted_cells(write):
    content = '"a","b"\n"x, y","line 1\nline 2"\n"","say ""hi"""\n'
    assert rows(write(content)) == [("x, y", "line 1\nline 2"), ("", 'say "hi"')]


def test_quote_in_the_middle_of_a_cell_is_text(write):
    assert rows(write('a,b\n5" pipe,2\n"q",4\n7" x,8\n')) == [('5" pipe', "2"), ("q", "4"), ('7" x', "8")]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('a,b\n1,2\n"x,3\n4,5\n', 3),
        ('a,b\n1,"x\n2,"y"\n', 2),
        ('a,b\n"x"z,1\n', 2),
        ('"a,b\n1,2\n', 1),
        ('a,b\n5" pipe,1\n2,"y\n3,4\n', 3),
    ],
)
def test_unclosed_quote_names_the_line_it_opens(write, content, line):
    with raises(TableError, f"line {line}", "quote"):
        read(write(content))


@pytest.fixture
def usual_limit():
    """The csv module as every process finds it."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("usual_limit")
@pytest.mark.parametrize("blank", ["", "\n"], ids=["plain", "through the csv module"])
def test_cells_may_be_longer_than_the_csv_module_expects(write, blank):
    long = "x" * 150_000
    path = write(f"a;b\n1;{long}\n{blank}2;y\n")
    assert rows(path) == [("1", long), ("2", "y")]
    path = write(f"a;{long}\n1;2\n{blank}")
    assert read(path).columns == ["a", long]


@pytest.mark.usefixtures("usual_limit")
def test_a_cell_longer_than_any_row_is_told_from_an_unclosed_quote(write, monkeypatch):
    monkeypatch.setattr(text_structure, "LONGEST_RECORD", 1 << 17)
    path = write("a,b\n\n1,2\n3," + "x" * 150_000 + "\n")
    with raises(TableError, "line 4", "64 MB"):
        read(path)


def test_row_without_end_is_refused(write, monkeypatch):
    monkeypatch.setattr(text_structure, "LONGEST_RECORD", 100)
    with raises(TableError, "line 3", "end of row"):
        read(write('a,b\n1,2\n"' + "x" * 200))


@pytest.mark.parametrize(
    "content",
    [
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\n1,2\n3,4",
        "a,b\r\n1,2\r\n3,4",
        b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        b'\xef\xbb\xbf"a",b\n1,2\n\n3,4\n',
        "a,b\n1,2\n\n3,4\n\n\n",
        "a,b\r\n1,2\r\n\r\n3,4\r\n\r\n",
        "\n\na,b\n1,2\n3,4\n",
    ],
)
def test_line_ends_marks_and_blank_lines(write, content):
    table = read(write(content))
    assert table.columns == ["a", "b"]
    assert table.rows() == [("1", "2"), ("3", "4")]


def test_row_of_empty_cells_is_kept(write):
    assert rows(write("a,b\n,\n\n1,\n")) == [("", ""), ("1", "")]


def test_blank_line_of_one_column_is_an_empty_cell(write):
    assert rows(write("a\n1\n\n3\n")) == [("1",), ("",), ("3",)]


def test_carriage_returns_alone(write):
    with raises(TableError, "carriage return"):
        read(write("a,b\r1,2\r"))


def test_nul_byte(write):
    with raises(TableError, "line 3", "NUL byte"):
        read(write(b"a,b\n1,2\n3,\x00\n"))


def test_invalid_utf8_names_line_and_advice(write):
    with raises(TableError, "line 3", "UTF-8", "0xe9", "data.encoding", "latin-1"):
        read(write("a,b\nü,2\n".encode() + b"caf\xe9,4\n"))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig"])
def test_other_encodings(write, encoding):
    path = write("é,b\nü,2\n".encode(encoding))
    table = read(path, encoding=encoding)
    assert (table.columns, table.rows()) == (["é", "b"], [("ü", "2")])


def test_text_that_is_not_of_the_encoding(write):
    with raises(TableError, "ascii", "data.encoding"):
        read(write("a,b\nü,2\n"), encoding="ascii")


@pytest.mark.parametrize("encoding", ["klingon", "base64"])
def test_unknown_encoding(write, encoding):
    with raises(ConfigError, "data.encoding", encoding):
        read(write("a,b\n1,2\n"), encoding=encoding)


def test_duplicate_names(write):
    with raises(TableError, "'a'", "'b'"):
        read(write("a,b,a,b,c\n1,2,3,4,5\n"))


def test_index_column_gets_a_name_and_other_empty_names_do_not(write):
    assert read(write(",b\n0,x\n")).to_dict(as_series=False) == {"column_0": ["0"], "b": ["x"]}
    with raises(TableError, "column 2"):
        read(write("a,,c\n1,2,3\n"))


@pytest.mark.parametrize(("content", "fact"), [("", "empty"), ("\n \n", "empty"), ("a,b\n", "no rows")])
def test_nothing_to_read(write, content, fact):
    with raises(TableError, fact):
        read(write(content))


def test_packed_files(write):
    text = b"a,b\n" + b"1,2\n" * 1000
    zstd_path = write(b"", "t.csv.zst")
    with pa.CompressedOutputStream(str(zstd_path), "zstd") as stream:
        stream.write(text)
    members = write(gzip.compress(text) + gzip.compress(b"3,4\n"), "t.csv.gz")
    assert len(rows(zstd_path)) == 1000
    assert rows(members)[-2:] == [("1", "2"), ("3", "4")]


def test_cut_off_gzip_names_the_file(write):
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    with raises(TableError, "t.csv.gz", "cannot be read", "truncated"):
        read(write(packed[:-12], "t.csv.gz"))


def test_one_column_can_be_selected(write):
    file = open_delimited(write('a,b\n1,x\n\n2,"y\nz"\n'))
    for _ in range(2):
        assert [chunk.rows() for chunk, _ in delimited_rows(file, ["b"], Place())] == [[("x",), ("y\nz",)]]


def test_copies_are_removed_at_exit(write, tmp_path):
    path = write("a,b\n1,2\n\né,4\n".encode("latin-1"))
    code = (
        "import sys, pathlib, tempfile; tempfile.tempdir = sys.argv[2]\n"
        "import fielddep\n"
        "config = fielddep.Config().replace({'data.encoding': 'latin-1'})\n"
        "table = fielddep.read_table(sys.argv[1], config.data)\n"
        "copies = [p for p in pathlib.Path(sys.argv[2]).rglob('*') if p.is_file()]\n"
        "print(len(copies), len(table))"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(path), str(scratch)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "2"]
    assert list(scratch.iterdir()) == []


CELLS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=150, deadline=None)
@given(table=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=8), data=st.data())
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory, table, data):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    delimiter = data.draw(st.sampled_from(",;\t|"))
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows([("a", "b", "c"), *table])
    assert rows(path, delimiter=delimiter) == table

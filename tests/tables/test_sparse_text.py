"""libffm and libsvm text: columns, kinds, and errors with their line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fielddep.config.data import DataConfig
from fielddep.errors import TableError
from fielddep.tables import sparse_text
from fielddep.tables.sparse_text import read_libffm, read_libsvm
from tests.helpers import raises

PLAIN = DataConfig()


@pytest.fixture
def write(tmp_path: Path):
    def _write(content: str | bytes, name: str = "t.ffm") -> list[Path]:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [path]

    return _write


def ffm(paths, config=PLAIN, **options):
    return read_libffm(paths, config, **options).collect().to_dict(as_series=False)


def svm(paths, config=PLAIN, **options):
    return read_libsvm(paths, config, **options).collect().to_dict(as_series=False)


def test_libffm_columns(write):
    paths = write("1 0:7:1 1:3:1.0 2:9:0.5\n\n0 0:8:1 2:9:2\r\n-1\t1:3:1  0:007:1 # note\n")
    assert ffm(paths) == {
        "label": ["1", "0", "-1"],
        "field_0": ["7", "8", "007"],
        "field_1": ["3", None, "3"],
        "field_2": [0.5, 2.0, None],
    }


def test_libffm_target_name_and_field_order(write):
    table = ffm(write("1 10:7:1 2:3:1\n"), DataConfig(target="click"))
    assert list(table) == ["click", "field_2", "field_10"]


@pytest.mark.parametrize("size", [16, 40, 1 << 20])
def test_libffm_chunks_agree_with_the_complete_file(write, monkeypatch, size):
    lines = [
        f"{i % 2} 0:{i}:1" + (f" 1:5:{i / 4}" if i % 3 else "") + (" 4:2:1" if i == 77 else "") for i in range(100)
    ]
    paths = write("\n".join(lines))
    monkeypatch.setattr(sparse_text, "_CHUNK_BYTES", size)
    table = ffm(paths)
    assert table["label"] == [str(i % 2) for i in range(100)]
    assert table["field_0"] == [str(i) for i in range(100)]
    assert table["field_1"] == [i / 4 if i % 3 else None for i in range(100)]
    assert table["field_4"] == ["2" if i == 77 else None for i in range(100)]


def test_libffm_several_files_and_gzip(write):
    first = write("1 0:7:1\n", "a.ffm")
    second = write(gzip.compress(b"0 0:8:1 1:4:1\n"), "b.ffm.gz")
    assert ffm(first + second) == {"label": ["1", "0"], "field_0": ["7", "8"], "field_1": [None, "4"]}


def test_libffm_field_twice_in_a_row(write):
    with raises(TableError, "t.ffm", "line 3", "field 4", "twice"):
        ffm(write("1 4:1:1 5:1:1\n\n1 4:1:1 5:1:1 4:2:1\n"))
    assert ffm(write("1 5:1:1 4:1:1\n0 4:3:1 5:2:1\n"))["field_4"] == ["1", "3"]


def test_libffm_values_that_fit_neither_kind(write):
    with raises(TableError, "field 1"):
        ffm(write("1 0:1:1 1:3:0.5\n1 0:1:1 1:4:1\n"))


def test_kinds_decide_what_one_file_leaves_open(write):
    paths = write("1 0:7:1 1:3:1\n0 0:7:1\n")
    assert ffm(paths)["field_1"] == ["3", None]
    assert ffm(paths, DataConfig(kinds={"field_1": "numerical"}))["field_1"] == [1.0, None]
    with raises(TableError, "categorical"):
        ffm(write("1 0:7:2\n"), DataConfig(kinds={"field_0": "categorical"}))


def test_fields_named_in_the_config_are_there(write):
    config = DataConfig(fields=("field_0", "field_3"))
    assert ffm(write("1 0:7:1\n"), config) == {"label": ["1"], "field_0": ["7"], "field_3": [None]}
    assert svm(write("1 4:1\n"), DataConfig(fields=("x4", "x6"))) == {"label": ["1"], "x4": [1.0], "x6": [0.0]}


@pytest.mark.parametrize(
    ("line", "token"),
    [
        ("1 0:7", "0:7"),
        ("1 a:7:1", "a:7:1"),
        ("1 0::1", "0::1"),
        ("1 0:7:x", "0:7:x"),
        ("1 0:7:1:1", "0:7:1:1"),
        ("1 x", "x"),
        ("1 -1:7:1", "-1:7:1"),
        ("1 0:b:1", "0:b:1"),
    ],
)
def test_libffm_malformed_token(write, line, token):
    with raises(TableError, "line 2", f"'{token}'"):
        ffm(write(f"1 0:7:1\n{line}\n"))


def test_label_is_needed_unless_said(write):
    paths = write("1 0:7:1\n0:8:1 1:2:1\n")
    with raises(TableError, "line 2", "label", "'0:8:1'"):
        ffm(paths)
    assert ffm(write("0:8:1 1:2:1\n0:9:1\n"), has_target=False) == {"field_0": ["8", "9"], "field_1": ["2", None]}
    assert ffm(write("1 0:8:1\n"), has_target=False) == {"label": ["1"], "field_0": ["8"]}
    assert svm(write("8:1 9:1\n7:1 9:1\n"), has_target=False) == {"field_0": ["8", "7"], "field_1": ["9", "9"]}


@pytest.mark.parametrize("read", [ffm, svm])
@pytest.mark.parametrize(("content", "fact"), [("\n\n", "empty"), ("# note\n", "empty"), ("1\n0\n", "token")])
def test_nothing_to_read(write, read, content, fact):
    with raises(TableError, fact):
        read(write(content))


def test_bytes_that_are_no_text(write):
    with raises(TableError, "line 2", "UTF-8"):
        ffm(write(b"1 0:7:1\n1 0:\xff:1\n"))


def test_byte_order_mark(write):
    assert ffm(write(b"\xef\xbb\xbf1 0:7:1\n"))["label"] == ["1"]


def test_libsvm_positional_fields(write):
    paths = write("1 5:1 17:1 40:1\n0 6:1 17:1 41:1.0\n")
    assert svm(paths) == {
        "label": ["1", "0"],
        "field_0": ["5", "6"],
        "field_1": ["17", "17"],
        "field_2": ["40", "41"],
    }


def test_libsvm_rows_of_different_length_are_numeric(write):
    table = svm(write("1 10:1 2:1\n0 2:1\n1\n0 10:1 2:1 3:1\n"), DataConfig(target="y"))
    assert table == {
        "y": ["1", "0", "1", "0"],
        "x2": [1.0, 1.0, 0.0, 1.0],
        "x3": [0.0, 0.0, 0.0, 1.0],
        "x10": [1.0, 0.0, 0.0, 1.0],
    }


def test_libsvm_rows_of_different_length_with_an_even_total_are_numeric(write):
    assert list(svm(write("1 1:1\n0 1:1 2:1 3:1\n"))) == ["label", "x1", "x2", "x3"]


def test_libsvm_other_values_are_numeric(write):
    assert svm(write("1 1:0.5 2:-3e2\n0 1:1 2:1\n")) == {"label": ["1", "0"], "x1": [0.5, 1.0], "x2": [-300.0, 1.0]}


@pytest.mark.parametrize("size", [16, 1 << 20])
def test_libsvm_chunks_agree_with_the_complete_file(write, monkeypatch, size):
    lines = [f"{i % 2} 1:1 2:1" + (" 3:4" if i == 60 else "") for i in range(80)]
    monkeypatch.setattr(sparse_text, "_CHUNK_BYTES", size)
    assert svm(write("\n".join(lines)))["x3"] == [4.0 if i == 60 else 0.0 for i in range(80)]
    positional = svm(write("\n".join(lines[:60])))
    assert positional["field_1"] == ["2"] * 60
    assert positional["label"] == [str(i % 2) for i in range(60)]


def test_libsvm_too_many_columns(write):
    line = " ".join(f"{i}:2" for i in range(1001))
    with raises(TableError, 1001, 1000):
        svm(write(f"1 {line}\n"))


def test_libsvm_index_twice_and_malformed(write):
    with raises(TableError, "line 2", "index 3", "twice"):
        svm(write("1 3:2\n0 3:1 3:2\n"))
    with raises(TableError, "line 1", "'qid:3'"):
        svm(write("1 qid:3 1:1\n"))

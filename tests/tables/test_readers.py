"""One function reads every source: formats by name and content, tables in memory, and clear refusals."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fielddep.config.data import DataConfig
from fielddep.errors import ConfigError, TableError
from fielddep.tables.readers import scan_chunks, table_paths
from fielddep.tables.row_stream import open_rows, read_table
from tests.helpers import raises

TABLE = pl.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None]})
TEXT = "a,b\n1,x\n2,y\n"


def read(source, **settings):
    return read_table(source, DataConfig(**settings))


def columns(source, **settings):
    return read(source, **settings).to_dict(as_series=False)


# --- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.parquet", "t.pq", "t.PARQUET", "noname"])
def test_parquet(tmp_path, name):
    TABLE.write_parquet(tmp_path / name)
    assert read(tmp_path / name).equals(TABLE)
    assert read(str(tmp_path / name)).schema == TABLE.schema


@pytest.mark.parametrize("name", ["t.arrow", "t.feather", "t.ipc", "noname"])
def test_ipc(tmp_path, name):
    TABLE.write_ipc(tmp_path / name)
    assert read(tmp_path / name).equals(TABLE)


def test_ipc_stream(tmp_path):
    TABLE.write_ipc_stream(tmp_path / "t.arrow")
    assert read(tmp_path / "t.arrow").equals(TABLE)


@pytest.mark.parametrize("name", ["t.csv", "t.txt", "t.data", "noname", "a[1].csv", "t.CSV"])
def test_delimited(tmp_path, name):
    (tmp_path / name).write_text(TEXT)
    assert columns(tmp_path / name) == {"a": ["1", "2"], "b": ["x", "y"]}


def test_gzip_is_told_by_content(tmp_path):
    for name in ("t.csv.gz", "t.gz", "noname"):
        (tmp_path / name).write_bytes(gzip.compress(TEXT.encode()))
        assert columns(tmp_path / name) == {"a": ["1", "2"], "b": ["x", "y"]}


@pytest.mark.parametrize("name", ["t.tsv", "t.tab", "t.tsv.gz"])
def test_tab_from_the_name(tmp_path, name):
    text = b"a\tb\n1,5\t2,5\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert columns(tmp_path / name) == {"a": ["1,5"], "b": ["2,5"]}


def test_name_that_says_tab_and_a_file_of_commas(tmp_path):
    (tmp_path / "t.tsv").write_text(TEXT)
    with raises(TableError, "comma"):
        read_table(tmp_path / "t.tsv")
    assert columns(tmp_path / "t.tsv", format="csv") == {"a": ["1", "2"], "b": ["x", "y"]}
    assert columns(tmp_path / "t.tsv", delimiter=",") == {"a": ["1", "2"], "b": ["x", "y"]}


@pytest.mark.parametrize("name", ["t.ffm", "t.libffm", "t.txt", "noname"])
def test_libffm(tmp_path, name):
    (tmp_path / name).write_text("1 0:7:1 1:8:1\n0 0:6:1 1:8:1\n1 0:6:1\n")
    assert columns(tmp_path / name, target="y")["field_1"] == ["8", "8", None]


@pytest.mark.parametrize("name", ["t.svm", "t.libsvm", "t.libfm", "t.txt.gz", "noname"])
def test_libsvm(tmp_path, name):
    text = b"1 7:1 8:1\n0 6:1 8:1\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert columns(tmp_path / name) == {"label": ["1", "0"], "field_0": ["7", "6"], "field_1": ["8", "8"]}


def test_cut_off_sparse_gzip(tmp_path):
    (tmp_path / "t.ffm.gz").write_bytes(gzip.compress(b"1 0:7:1\n" * 1000)[:-12])
    with raises(TableError, "t.ffm.gz", "cannot be read"):
        read_table(tmp_path / "t.ffm.gz")


def test_rows_without_label(tmp_path):
    (tmp_path / "t.ffm").write_text("0:7:1 1:8:1\n")
    assert read_table(tmp_path / "t.ffm", has_target=False).columns == ["field_0", "field_1"]
    with raises(TableError, "line 1", "label"):
        read_table(tmp_path / "t.ffm")


def test_format_overrides_the_name(tmp_path):
    TABLE.write_parquet(tmp_path / "t.csv")
    assert read(tmp_path / "t.csv", format="parquet").equals(TABLE)
    with raises(ConfigError, "data.format", "csv", "'excel'"):
        read_table(tmp_path / "t.csv", DataConfig(format="excel"))


def test_encoding_reaches_files_without_a_telling_name(tmp_path):
    (tmp_path / "t").write_bytes("a,b\né,2\n".encode("utf-16"))
    assert columns(tmp_path / "t", encoding="utf-16") == {"a": ["é"], "b": ["2"]}


@pytest.mark.parametrize(
    "content", [b'{"a": 1, "b": 2}\n', b"PK\x03\x04\x00\x00,\n1,2\n", b"just words\nand more of them\n"]
)
def test_unknown_format_lists_the_supported(tmp_path, content):
    (tmp_path / "t.xyz").write_bytes(content)
    with raises(TableError, "t.xyz", "CSV", "Parquet", "libffm"):
        read_table(tmp_path / "t.xyz")


def test_nothing_there(tmp_path):
    with raises(TableError, "t.csv", "does not exist"):
        read_table(tmp_path / "t.csv")
    with raises(TableError, "*.csv", "no file"):
        read_table(f"{tmp_path}/*.csv")
    with raises(TableError, "no table"):
        read_table(tmp_path)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow", "t.ffm", "t"])
def test_empty_file(tmp_path, name):
    (tmp_path / name).touch()
    with raises(TableError, "empty"):
        read_table(tmp_path / name)


def test_columns_without_rows(tmp_path):
    TABLE.head(0).write_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("a,b\n")
    for path in (tmp_path / "t.parquet", tmp_path / "t.csv"):
        with raises(TableError, path.name, "no rows"):
            read_table(path)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
@pytest.mark.parametrize("keep", [10, 200])
def test_cut_off_binary_names_the_file(tmp_path, name, keep):
    path = tmp_path / name
    TABLE.write_parquet(path) if name == "t.parquet" else TABLE.write_ipc(path)
    path.write_bytes(path.read_bytes()[:keep])
    with raises(TableError, name, "cannot be read"):
        read_table(path)


def test_damage_inside_is_a_table_error(tmp_path):
    pl.DataFrame({"a": [str(i) for i in range(5000)]}).write_parquet(tmp_path / "t.parquet", compression="zstd")
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    content[4:60] = b"\xff" * 56
    (tmp_path / "t.parquet").write_bytes(content)
    with raises(TableError, "t.parquet", "cannot be read"):
        read_table(tmp_path / "t.parquet")
    stream = open_rows(tmp_path / "t.parquet")
    with raises(TableError, "t.parquet", "cannot be read"):
        list(stream.frames(["a"], 100))


def test_text_named_parquet(tmp_path):
    (tmp_path / "t.parquet").write_text(TEXT)
    with raises(TableError, "t.parquet", "cannot be read"):
        read_table(tmp_path / "t.parquet")


# --- many files -----------------------------------------------------------------------------------------------


def test_list_glob_and_folder_agree(tmp_path):
    for i in (2, 0, 1):
        TABLE.with_columns(pl.lit(i).alias("c")).write_parquet(tmp_path / f"part-{i}.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.md").write_text("notes")
    expected = [0] * 3 + [1] * 3 + [2] * 3
    assert read(tmp_path)["c"].to_list() == expected
    assert read(f"{tmp_path}/part-*.parquet")["c"].to_list() == expected
    assert read([tmp_path / f"part-{i}.parquet" for i in (1, 0)])["c"].to_list() == [1] * 3 + [0] * 3


def test_columns_in_another_order(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b;a\n4;3\n")
    assert columns(tmp_path) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_file_that_differs_is_named(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("a,c\n1,2\n")
    with raises(TableError, "2.csv", "b", "c"):
        read_table(tmp_path)
    one, two = tmp_path / "1.parquet", tmp_path / "2.parquet"
    TABLE.write_parquet(one)
    TABLE.with_columns(pl.col("a").cast(pl.String)).write_parquet(two)
    with raises(TableError, "2.parquet", "a", "String", "Int64"):
        read_table([one, two])
    with raises(TableError, "1.csv", "same format"):
        read_table([one, tmp_path / "1.csv"])


# --- memory ---------------------------------------------------------------------------------------------------


def test_frames_of_polars_and_arrow():
    assert read(TABLE).equals(TABLE)
    assert read(TABLE.lazy()).equals(TABLE)
    assert read(TABLE.to_arrow()).equals(TABLE)
    assert read(TABLE.to_arrow().to_batches()[0]).equals(TABLE)


def test_pandas_columns_of_every_kind():
    frame = pd.DataFrame(
        {
            "mixed": pd.Series([1, "a", None], dtype=object),
            "ints": pd.Series([2**53 + 1, None, 3], dtype=object),
            "nullable": pd.Series([2**60 + 1, None, 3], dtype="Int64"),
            "category": pd.Series(["x", None, "y"], dtype="category"),
            "number_category": pd.Series([5, None, 6], dtype="category"),
            "mixed_category": pd.Series([5, None, "z"], dtype="category"),
            "float": [0.5, np.nan, 1.5],
            "text": ["p", None, "q"],
            "bool": pd.Series([True, None, False], dtype="boolean"),
            "day": pd.to_datetime(["2020-01-02", None, "2020-01-03"]),
            "huge": pd.Series([2**70, None, 1], dtype=object),
            "period": pd.Series([pd.Period("2020-01"), None, pd.Period("2020-03")], dtype="period[M]"),
            "arrow": pd.Series(["k", None, "l"], dtype=pd.ArrowDtype(pa.string())),
            7: [1, 2, 3],
        }
    )
    frame.index = pd.Index([10, 20, 30])
    day = datetime.datetime
    assert columns(frame) == {
        "mixed": ["1", "a", None],
        "ints": [2**53 + 1, None, 3],
        "nullable": [2**60 + 1, None, 3],
        "category": ["x", None, "y"],
        "number_category": [5, None, 6],
        "mixed_category": ["5", None, "z"],
        "float": [0.5, None, 1.5],
        "text": ["p", None, "q"],
        "bool": [True, None, False],
        "day": [day(2020, 1, 2), None, day(2020, 1, 3)],
        "huge": [str(2**70), None, "1"],
        "period": ["2020-01", None, "2020-03"],
        "arrow": ["k", None, "l"],
        "7": [1, 2, 3],
    }


def test_mixed_pandas_column_with_every_missing_mark():
    frame = pd.DataFrame({"a": pd.Series(["x", 1, np.nan, None, pd.NA, pd.NaT], dtype=object)})
    assert columns(frame) == {"a": ["x", "1", None, None, None, None]}


def test_duplicate_names_in_memory():
    with raises(TableError, "'a'"):
        read_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with raises(TableError, "'1'"):
        read_table(pd.DataFrame([[1, 2]], columns=[1, "1"]))
    with raises(TableError, "'a'"):
        read_table(pa.table([[1], [2]], names=["a", "a"]))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[1, 2], [3, 4]]), {"x0": [1, 3], "x1": [2, 4]}),
        (np.array([["a", "b"], ["c", ""]]), {"x0": ["a", "c"], "x1": ["b", ""]}),
        (np.array([[b"a", b"\xc3\xa9"]]), {"x0": ["a"], "x1": ["é"]}),
        (np.array([[1, "b"], ["a", None]], dtype=object), {"x0": ["1", "a"], "x1": ["b", None]}),
        (np.array([[0.5, np.nan]], dtype=np.float32), {"x0": [0.5], "x1": [None]}),
        (np.ma.array([[1, 2]], mask=[[False, True]]), {"x0": [1], "x1": [None]}),
    ],
)
def test_numpy(array, expected):
    assert columns(array) == expected


def test_dict_of_columns():
    source = {"a": [1, 2], 3: np.array(["x", "y"]), "s": pl.Series([True, None]), "p": pd.Series([1.5, 2.5])}
    assert columns(source) == {"a": [1, 2], "3": ["x", "y"], "s": [True, None], "p": [1.5, 2.5]}
    with raises(TableError, "a: 2", "b: 1"):
        read_table({"a": [1, 2], "b": [1]})
    with raises(TableError, "column 'a'", "str"):
        read_table({"a": "text"})


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        (np.arange(3), ("2-D", "1-D")),
        (3, ("int",)),
        (None, ("NoneType",)),
        ([[1, 2], [3, 4]], ("list",)),
        ([], ("list",)),
        (pd.Series([1, 2]), ("Series",)),
        (pl.Series([1, 2]), ("Series",)),
        ({}, ("dict",)),
        (pd.DataFrame({"a": []}), ("DataFrame", "no rows")),
        (np.empty((0, 2)), ("ndarray", "no rows")),
    ],
)
def test_refused_sources(source, facts):
    with raises(TableError, *facts):
        read_table(source)


# --- running --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [1, 7, 1000, 99_999, 200_000])
def test_batches_keep_the_order_and_the_size(tmp_path: Path, n_rows):
    table = pl.DataFrame({"a": range(100_000 if n_rows > 7 else 50)})
    table.write_csv(tmp_path / "t.csv")
    batches = list(open_rows(tmp_path / "t.csv").frames(["a"], n_rows))
    assert [len(b) for b in batches[:-1]] == [n_rows] * (len(batches) - 1)
    assert 0 < len(batches[-1]) <= n_rows
    assert pl.concat(batches)["a"].cast(pl.Int64).to_list() == table["a"].to_list()


def test_batches_of_frames_in_uneven_pieces():
    pieces = [pl.DataFrame({"a": range(start, stop)}) for start, stop in ((0, 5), (5, 6), (6, 20))]
    batches = list(scan_chunks(pl.concat(pieces, rechunk=False).lazy(), 4))
    assert [b["a"].to_list() for b in batches] == [list(range(i, i + 4)) for i in range(0, 20, 4)]


def test_no_rows_give_no_batch_and_no_size_is_refused():
    empty = TABLE.lazy().filter(pl.col("a") > 9)
    assert list(open_rows(empty).frames(["a"], 4)) == []
    assert read_table(empty).equals(TABLE.clear())
    with raises(ConfigError, 1, 0):
        open_rows(TABLE).frames(["a"], 0)


def test_file_that_vanished(tmp_path):
    (tmp_path / "t.csv").write_text(TEXT)
    stream = open_rows(tmp_path / "t.csv")
    (tmp_path / "t.csv").unlink()
    with raises(TableError, "t.csv", "vanished"):
        read_table(stream)


@pytest.mark.parametrize("again", ["part-1.csv", "./part-1.csv", "link.csv", "part-*.csv", "."])
def test_a_file_given_twice_is_refused(tmp_path, monkeypatch, again):
    """Its rows would be counted twice, and stand in two parts of a split."""
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    for name in ("part-0.csv", "part-1.csv"):
        Path(name).write_text("a,b\n1,2\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "data" / "part-1.csv")
    source = str(tmp_path / "link.csv") if again == "link.csv" else again
    with raises(TableError, "twice"):
        table_paths([str(tmp_path / "data"), source])
    assert table_paths(["part-1.csv", "part-0.csv"]) == [Path("part-1.csv"), Path("part-0.csv")]

"""Rows in chunks: the same rows from every position on, and errors that name file and line."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fielddep.config.data import DataConfig
from fielddep.config.settings import Config
from fielddep.errors import ConfigError, SchemaError, SplitError, TableError, UserError
from fielddep.store.build import build_store
from fielddep.tables.delimited import Place, delimited_rows, open_delimited
from fielddep.tables.row_stream import Position, open_rows, read_table
from fielddep.training.prepare import prepare
from tests.helpers import raises, states
from tests.streamed import SMALL_SIZES, mixed_frame, small_chunks

__all__ = ["small_chunks"]
pytestmark = pytest.mark.usefixtures("small_chunks")

CONFIG = Config().replace({"data.target": "good", "data.exclude": ["grade", "amount", "weight"]})
TEXTS = {
    "plain": "a,b\n" + "".join(f"x{i},{i}\n" for i in range(400)),
    "no-end": "a,b\n" + "".join(f"x{i},{i}\n" for i in range(400)) + "last,1",
    "windows": "\ufeffa\tb\r\n" + "".join(f"x{i}\t{i}\r\n" for i in range(400)),
    "quoted": "a,b\n" + "".join(f'"x, ""{i}""\n",{i}\n' for i in range(400)),
    "blank-later": "a,b\n" + "".join(f"x{i},{i}\n" + "\n" * (i == 300) for i in range(400)),
    "odd-quotes": "a,b\n" + "".join(f"x{' 5' + chr(34) if i % 90 == 80 else i},{i}\n" for i in range(400)),
    "blank-first": "\ufeff\n\na,b\n" + "".join(f"x{i},{i}\n" for i in range(400)),
    "empty-cells": "a,b\n" + ",1\n,\nx,\n" * 300,
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_rows_from_every_position(tmp_path: Path, name: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fielddep.tables.delimited.CHUNK_BYTES", 700)
    monkeypatch.setattr("fielddep.tables.delimited._CSV_ROWS", 50)
    path = tmp_path / ("table.csv" + ".gz" * packed)
    data = TEXTS[name].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    expected = read_table(path)
    file = open_delimited(path)
    chunks = list(delimited_rows(file, ["b", "a"], Place()))
    assert len(chunks) > 3
    assert pl.concat([rows for rows, _ in chunks]).equals(expected.select("b", "a"))
    n_rows = 0
    for rows, place in chunks:
        n_rows += len(rows)
        rest = [more for more, _ in delimited_rows(file, ["b", "a"], place)]
        left = pl.concat(rest) if rest else expected.select("b", "a").clear()
        assert left.equals(expected.select("b", "a")[n_rows:])


def test_a_stream_over_files_goes_on_anywhere(tmp_path: Path) -> None:
    table = mixed_frame(600)
    for ending in ("csv", "parquet"):
        for i, part in enumerate((table[:200], table[200:203], table[203:])):
            path = tmp_path / f"{i}.{ending}"
            part.write_csv(path) if ending == "csv" else part.write_parquet(path)
        stream = open_rows(str(tmp_path / f"*.{ending}"), DataConfig())
        chunks = list(stream.chunks(["word", "colour"]))
        whole = pl.concat([rows for rows, _ in chunks])
        assert whole.equals(read_table(str(tmp_path / f"*.{ending}")).select("word", "colour"))
        assert {position.file for _, position in chunks} == {0, 1, 2}
        n_rows = 0
        for rows, position in chunks:
            n_rows += len(rows)
            again = Position.from_json(position.to_json())
            rest = [more for more, _ in stream.chunks(["word", "colour"], again)]
            left = pl.concat(rest) if rest else whole.clear()
            assert left.equals(whole[n_rows:])
        shares = [stream.share_read(position) for _, position in chunks]
        assert shares == sorted(shares)  # type: ignore[type-var]
        assert shares[-1] == (1.0 if ending == "csv" else pytest.approx(shares[-1]))
    (tmp_path / "1.csv").write_bytes(gzip.compress((tmp_path / "1.csv").read_bytes()))
    stream = open_rows(str(tmp_path / "*.csv"), DataConfig())
    positions = [position for _, position in stream.chunks(["word"])]
    assert {position.file for position in positions} == {0, 1, 2}
    assert {stream.share_read(position) for position in positions} == {None}  # places are those of unpacked text


# --- errors ---------------------------------------------------------------------------------------------------


def three_files(tmp_path: Path) -> list[Path]:
    table = mixed_frame(600)
    paths = [tmp_path / f"{i}.csv" for i in range(3)]
    for i, path in enumerate(paths):
        table[i * 200 : (i + 1) * 200].write_csv(path)
    return paths


def refused(paths: object, tmp_path: Path, error: type[UserError], *facts: object, config: Config = CONFIG) -> None:
    with raises(error, *facts):
        build_store(paths, config, tmp_path / "store")
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").iterdir())


@pytest.mark.parametrize(
    ("line", "facts"),
    [("red,1", (12, 2)), ("a\0b", ("NUL",))],
)
def test_a_malformed_line_in_the_third_file_is_named(tmp_path: Path, line: str, facts: tuple[object, ...]) -> None:
    paths = three_files(tmp_path)
    lines = paths[2].read_text().splitlines()
    paths[2].write_text("\n".join([*lines[:149], line, *lines[149:]]))
    refused(paths, tmp_path, TableError, "2.csv", "line 150", *facts)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    paths = three_files(tmp_path)
    lines = paths[1].read_bytes().splitlines()
    paths[1].write_bytes(b"\n".join([*lines[:120], lines[120].replace(b",", b"\xff,", 1), *lines[121:]]))
    refused(paths, tmp_path, TableError, "1.csv", "line 121", "UTF-8", "0xff")


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    table = mixed_frame(600)
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path in paths:
        table.write_parquet(path)
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    refused(paths, tmp_path, TableError, "1.parquet", "cannot be read")


def test_damage_in_the_middle_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "0.parquet"
    mixed_frame(3000).write_parquet(path, row_group_size=500)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    path.write_bytes(data)
    refused(path, tmp_path, TableError, "0.parquet", "cannot be read")


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    paths = three_files(tmp_path)
    paths[2].write_text("a,b\n1,2\n")
    refused(paths, tmp_path, TableError, "2.csv", "colour")
    mixed_frame(9).write_parquet(tmp_path / "3.parquet")
    refused([paths[0], tmp_path / "3.parquet"], tmp_path, TableError, "3.parquet", "same format")
    refused(tmp_path / "none.csv", tmp_path, TableError, "none.csv", "does not exist")
    refused(str(tmp_path / "no*.csv"), tmp_path, TableError, "no file", "no*.csv")


def test_tables_without_rows(tmp_path: Path) -> None:
    paths = three_files(tmp_path)
    paths[1].write_text(paths[1].read_text().splitlines()[0] + "\n")
    refused(paths, tmp_path, TableError, "1.csv", "no rows")
    paths[1].write_text("")
    refused(paths, tmp_path, TableError, "1.csv", "empty")
    refused(mixed_frame(5).clear(), tmp_path, TableError, "no rows")


def test_settings_that_do_not_fit_the_table(tmp_path: Path) -> None:
    paths = three_files(tmp_path)
    for error, settings, *facts in (
        (SchemaError, {"data.target": "god"}, "data.target", "'god'", "'good'"),
        (SchemaError, {"data.target": None}, "data.target"),
        (SchemaError, {"data.exclude": ["nothing"]}, "data.exclude", "'nothing'"),
        (SchemaError, {"data.weight": "wait"}, "data.weight", "'wait'"),
        (SplitError, {"split.method": "time"}, "split.column"),
        (SplitError, {"split.method": "group", "split.column": "x"}, "split.column", "'x'"),
        (SplitError, {"split.method": "time", "split.column": "price"}, "'price'", "missing"),
        (SplitError, {"split.method": "column", "split.column": "colour"}, "train", "validation", "'colour'"),
        (SchemaError, {"data.target": "shape", "data.task": "binary"}, "'shape'", "two values", "data.task"),
        (SchemaError, {"data.target": "constant"}, "'constant'", "600 rows"),
        (SchemaError, {"data.fields": ["colour"]}, "two fields"),
        (SchemaError, {"data.crosses": [["colr", "shape"]]}, "data.crosses", "'colr'"),
        (ConfigError, {"data.delimiter": "ab"}, "data.delimiter", "'ab'"),
    ):
        refused(paths, tmp_path, error, *facts, config=CONFIG.replace(settings))


def test_a_cross_of_no_field_is_refused_before_the_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*args: object) -> None:
        raise AssertionError("the table was read")

    monkeypatch.setattr("fielddep.tables.row_stream.RowStream.chunks", read)
    paths = three_files(tmp_path)
    for name, exclude in (("colr", []), ("good", []), ("shape", ["shape"])):
        settings = {"data.crosses": [["colour", name]], "data.exclude": exclude}
        with raises(SchemaError, "data.crosses", name):
            build_store(paths, CONFIG.replace(settings), tmp_path / "store")
    with raises(SchemaError, "two different fields"):
        build_store(paths, CONFIG.replace({"data.crosses": [["colour", "colour"]]}), tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kept_as", ["codes", "numbers"])
@pytest.mark.parametrize("value", ["NA", "?", "NaN", "null", ""])
def test_missing_targets_are_counted_as_in_memory(
    tmp_path: Path, value: str, kept_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept_as == "numbers":
        monkeypatch.setattr("fielddep.store.build.SIZES", replace(SMALL_SIZES, max_distinct=100))
    target = "good" if kept_as == "codes" else "amount"
    table = mixed_frame(900).with_columns(pl.col(target).cast(pl.String))
    for row in (300, 301, 888):
        table[row, target] = value
    config = Config().replace({"data.target": target})
    facts = (f"target '{target}'", "3 missing", "row 300")
    with raises(SchemaError, *facts):
        prepare(table, config)
    refused(table, tmp_path, SchemaError, *facts, config=config)


def test_texts_that_mean_missing_among_numbers_are_classes_among_texts(tmp_path: Path) -> None:
    table = mixed_frame(900).with_columns(grade=pl.col("grade").replace("a", "NA"))
    store = build_store(table, Config().replace({"data.target": "grade"}), tmp_path / "store")
    assert store.encoder.schema.target is not None
    assert store.encoder.schema.target.classes == ("NA", "b", "c")


def test_no_validation_rows_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build_store(mixed_frame(600), CONFIG, tmp_path / "store")
    assert "split.validation" not in caplog.text
    build_store(mixed_frame(600), CONFIG.replace({"split.validation": 0.0}), tmp_path / "other")
    assert states(caplog.text, "no validation rows", "split.validation")


def test_values_that_do_not_fit_name_their_row(tmp_path: Path) -> None:
    table = mixed_frame(900).with_columns(pl.col("good", "weight", "shape").cast(pl.String))
    for column, value, settings, *facts in (
        ("good", "", {}, "target 'good'", "1 missing"),
        ("weight", "-1", {"data.weight": "weight"}, "0 or more"),
        ("weight", "", {"data.weight": "weight"}, "0 or more"),
        ("weight", "x", {"data.weight": "weight"}, "numbers", "'x'"),
        ("shape", "x", {"data.kinds": {"shape": "numerical"}}, "numbers", "'x'"),
        ("good", "inf", {}, "finite numbers", "inf"),
        ("good", "x", {"data.task": "regression"}, "numbers", "'x'"),
    ):
        bad = table.clone()
        bad[700, column] = value
        exclude = [name for name in ("grade", "amount", "weight") if name not in settings.values()]
        config = CONFIG.replace({**settings, "data.exclude": exclude})
        refused(bad, tmp_path, SchemaError, f"'{column}'", "row 700", *facts, config=config)


def test_weights_of_zero_in_a_part(tmp_path: Path) -> None:
    table = mixed_frame(900).with_columns(part=pl.Series(["train"] * 700 + ["validation"] * 100 + ["test"] * 100))
    table = table.with_columns(weight=pl.when(pl.col("part") == "test").then(0.0).otherwise(1.0))
    settings = {"data.weight": "weight", "data.exclude": ["grade", "amount"]}
    settings |= {"split.method": "column", "split.column": "part"}
    refused(table, tmp_path, SchemaError, "test rows", "weight 0", config=CONFIG.replace(settings))
    no_training = table.with_columns(part=pl.lit("test"))
    refused(no_training, tmp_path, SplitError, "training", "at least one row", config=CONFIG.replace(settings))


def test_columns_of_structs_are_refused_unless_left_out(tmp_path: Path) -> None:
    table = mixed_frame(600).with_columns(tags=pl.Series([{"a": 1}] * 600))
    refused(table, tmp_path, SchemaError, "column 'tags'")
    build_store(table, CONFIG.replace({"data.exclude": ["tags", "grade"]}), tmp_path / "store")


def test_folders_that_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("...")
    for options in ({}, {"force": True}, {"resume": True}):
        with raises(UserError, tmp_path / "mine", "no store", "--force"):
            build_store(mixed_frame(600), CONFIG, tmp_path / "mine", **options)  # type: ignore[arg-type]
    with raises(UserError, "--force", "--resume"):
        build_store(mixed_frame(600), CONFIG, tmp_path / "new", force=True, resume=True)
    (tmp_path / "file").write_text("")
    with raises(UserError, tmp_path / "file", "no store"):
        build_store(mixed_frame(600), CONFIG, tmp_path / "file")
    first = build_store(mixed_frame(600), CONFIG, tmp_path / "new", resume=True)
    with raises(UserError, tmp_path / "new", "--force"):
        build_store(mixed_frame(600), CONFIG, tmp_path / "new")
    assert build_store(mixed_frame(700), CONFIG, tmp_path / "new", resume=True).n_rows == first.n_rows == 600
    assert build_store(mixed_frame(700), CONFIG, tmp_path / "new", force=True).n_rows == 700

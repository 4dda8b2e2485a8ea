"""JSON lines: one flat object per line, the same rows from every position on, and errors that name the line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from fielddep.config.data import DataConfig
from fielddep.config.settings import Config
from fielddep.errors import ConfigError, TableError
from fielddep.store.build import build_store
from fielddep.store.store import Store
from fielddep.tables import json_lines
from fielddep.tables.delimited import Place, Rows
from fielddep.tables.json_lines import JsonFile, json_rows, open_json_lines
from fielddep.tables.row_stream import open_rows, read_table
from tests.helpers import raises
from tests.streamed import mixed_frame, small_chunks

__all__ = ["small_chunks"]

LINES = [{"a": i, "b": f"x{i}, ü"} | ({"late": i / 4} if i > 300 else {}) for i in range(400)]
TEXT = "\n".join(json.dumps(line, ensure_ascii=False) for line in LINES) + "\n"


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def written(path: Path, text: str) -> Path:
    pack = {".gz": gzip.compress, ".zst": zstd}.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode()))
    return path


def test_cells_are_text_and_absent_keys_are_missing(tmp_path: Path) -> None:
    lines = ['{"n": 1, "f": 2.50, "s": "5"}', "", '{"yes": true, "s": null, "big": 12345678901234567890123}', " {} "]
    table = read_table(written(tmp_path / "t.jsonl", "\ufeff" + "\r\n".join(lines)))
    assert table.to_dict(as_series=False) == {
        "n": ["1", None, None],
        "f": ["2.5", None, None],
        "s": ["5", None, None],
        "yes": [None, "true", None],
        "big": [None, "12345678901234567890123", None],
    }


@pytest.mark.parametrize("name", ["t.jsonl", "t.ndjson", "t.JSONL", "t.jsonl.gz", "t.ndjson.zst"])
def test_rows_from_every_position(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", 1000)
    path = written(tmp_path / name, TEXT)
    expected = pl.DataFrame(
        [{key: str(line[key]) if key in line else None for key in LINES[-1]} for line in LINES],
        infer_schema_length=None,
    )
    assert read_table(path).equals(expected)
    file = open_json_lines(path)
    chunks = list(json_rows(file, ["late", "a"], Place()))
    assert len(chunks) > 3
    n_rows = 0
    for rows, place in chunks:
        n_rows += len(rows)
        rest = [more for more, _ in json_rows(file, ["late", "a"], place)]
        left = pl.concat(rest) if rest else expected.select("late", "a").clear()
        assert left.equals(expected.select("late", "a")[n_rows:])
    stream = open_rows(path)
    shares = [stream.share_read(position) for _, position in stream.chunks(["a"])]
    assert shares[-1] == (None if path.suffix in (".gz", ".zst") else 1.0)


def test_files_may_have_other_keys(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", '{"a": 1}\n{"a": 2, "b": 3}\n')
    written(tmp_path / "2.jsonl", '{"c": 4, "a": 5}\n')
    table = read_table(tmp_path)
    assert table.to_dict(as_series=False) == {"a": ["1", "2", "5"], "b": [None, "3", None], "c": [None, None, "4"]}


def test_a_key_with_lists_is_a_column_of_lists(tmp_path: Path) -> None:
    written(tmp_path / "1.jsonl", '{"a": 1, "tags": "x"}\n{"a": 2}\n')
    written(tmp_path / "2.jsonl", '{"a": 3, "tags": ["y", 5, true, null]}\n{"tags": []}\n')
    tags = read_table(tmp_path)["tags"]
    assert tags.dtype == pl.List(pl.String)
    assert tags.to_list() == [["x"], None, ["y", "5", "true", None], []]


def test_format_and_encoding_are_settings(tmp_path: Path) -> None:
    (tmp_path / "t.log").write_bytes('{"a": "é"}\n'.encode("latin-1"))
    config = DataConfig(format="ndjson", encoding="latin-1")
    assert read_table(tmp_path / "t.log", config).to_dict(as_series=False) == {"a": ["é"]}
    with raises(TableError, "t.log", "line 1", "data.encoding"):
        read_table(tmp_path / "t.log", DataConfig(format="jsonl"))
    with raises(ConfigError, "data.format", "jsonl"):
        read_table(tmp_path / "t.log", DataConfig(format="json"))


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ('{"a": 1', ()),
        ('{"a": 1} {"a": 2}', ()),
        ('{"a": NaN}', ()),
        ("[1, 2]", ()),
        ("x,y", ("x,y",)),
        ('{"a": 1, "tags": [["x"]]}', ("'tags'",)),
        ('{"a": 1, "more": {"x": 2}}', ("'more'",)),
        ('{"a": "\0"}', ("NUL",)),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, facts: tuple[str, ...]) -> None:
    path = written(tmp_path / "t.jsonl", '{"a": 0}\n\n' + line + '\n{"a": 3}\n')
    with raises(TableError, "t.jsonl", "line 3", *facts):
        read_table(path)


def test_a_file_in_one_long_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fielddep.tables.delimited.LONGEST_RECORD", 1000)
    path = written(tmp_path / "t.jsonl", '{"a": 0}\n' + json.dumps(LINES))
    with raises(TableError, "t.jsonl", "line 2"):
        read_table(path)


@pytest.mark.parametrize("text", ["\n\n", "{}\n{}\n", ""])
def test_files_without_rows_or_keys(tmp_path: Path, text: str) -> None:
    with raises(TableError, "t.jsonl"):
        read_table(written(tmp_path / "t.jsonl", text))


def test_a_cut_off_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-12])
    with raises(TableError, "t.jsonl.gz"):
        read_table(path)


def files(store: Store) -> dict[str, bytes]:
    """Files of a store, without those that name its source."""
    assert store.folder is not None
    return {path.name: path.read_bytes() for path in store.folder.iterdir() if path.suffix not in (".json", ".toml")}


@pytest.mark.usefixtures("small_chunks")
def test_a_store_is_that_of_the_same_csv_file_even_if_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mixed_frame(600).select("colour", "shape", "word", "good")
    table.write_csv(tmp_path / "t.csv")
    table.write_ndjson(tmp_path / "t.jsonl")
    config = Config().replace({"data.target": "good"})
    expected = files(build_store(tmp_path / "t.csv", config, tmp_path / "csv"))
    assert expected
    assert files(build_store(tmp_path / "t.jsonl", config, tmp_path / "whole")) == expected

    starts: list[Place] = []

    def interrupted(file: JsonFile, columns: Sequence[str], start: Place) -> Rows:
        starts.append(start)
        for number, chunk in enumerate(json_rows(file, columns, start)):
            if number == 9 and len(starts) == 1:
                raise KeyboardInterrupt
            yield chunk

    monkeypatch.setattr("fielddep.tables.row_stream.json_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_store(tmp_path / "t.jsonl", config, tmp_path / "resumed")
    assert files(build_store(tmp_path / "t.jsonl", config, tmp_path / "resumed", resume=True)) == expected
    assert starts[1].offset > 0

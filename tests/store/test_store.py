"""The store: what is written comes back, and nothing damaged is taken for whole."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import StoreError, UserError
from fielddep.store.folder import STORE
from fielddep.store.format import ArraySpec, ShardWriter, read_rows
from fielddep.store.store import Store, StoreWriter, is_store, stored_rows
from tests.conftest import small_frame
from tests.helpers import raises
from tests.streamed import learned, mixed_frame

CONFIG = Config().replace(
    {"data.target": "good", "data.weight": "weight", "data.numeric": "scale", "data.exclude": ["grade", "amount"]}
)


def encoded(config: Config = CONFIG) -> tuple[Encoder, EncodedRows, np.ndarray]:
    table = mixed_frame(500)
    encoder = learned(table, config)
    parts = np.random.default_rng(0).integers(0, 3, 500).astype(np.uint8)
    return encoder, encoder.encode(table, with_target=True)[0], parts


def write(folder: Path, step: int = 37, config: Config = CONFIG) -> tuple[Store, EncodedRows, np.ndarray]:
    encoder, rows, parts = encoded(config)
    folder.mkdir()
    writer = StoreWriter(folder, encoder=encoder, config=config, shard_rows=64, chunk_rows=16)
    for start in range(0, 500, step):
        places = np.arange(start, min(start + step, 500))
        writer.append({**rows.take(places).arrays, "parts": parts[start : start + step]})
    return writer.finish([{"name": "t.csv", "size": 3, "mtime_ns": 4}]), rows, parts


def same(a: EncodedRows, b: EncodedRows) -> bool:
    pairs = [(a.ids_RF, b.ids_RF), (a.numbers_RN, b.numbers_RN), (a.target_R, b.target_R), (a.weight_R, b.weight_R)]
    return a.layout == b.layout and all(
        x is y if x is None or y is None else x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs
    )


@pytest.mark.parametrize("step", [1, 16, 37, 64, 500])
def test_rows_come_back(tmp_path: Path, step: int) -> None:
    store, rows, parts = write(tmp_path / "store", step)
    store = Store.open(store.folder, check=True)
    for start, stop in ((0, 500), (0, 1), (63, 65), (100, 300), (499, 500), (7, 7)):
        assert same(store.read(start, stop), rows.take(np.arange(start, stop)))
        assert store.parts(start, stop).tolist() == parts[start:stop].tolist()
    assert len(store.read(490, 900)) == 10
    assert len(store.read(600, 900)) == 0
    assert store.config.data == CONFIG.data
    assert store.sources == ({"name": "t.csv", "size": 3, "mtime_ns": 4},)


@pytest.mark.parametrize("task", ["multiclass", "regression", "binary"])
def test_arrays_have_the_types_that_models_want(tmp_path: Path, task: str) -> None:
    target = {"multiclass": "grade", "regression": "amount", "binary": "good"}[task]
    exclude = sorted({"good", "grade", "amount", "weight"} - {target})
    config = Config().replace({"data.target": target, "data.exclude": exclude})
    store, rows, _ = write(tmp_path / "store", config=config)
    assert same(store.read(0, 500), rows)
    assert store.read(0, 3).target_R.dtype == (np.int64 if task == "multiclass" else np.float32)  # type: ignore[union-attr]
    assert not list(store.folder.glob("*.numbers"))
    assert not list(store.folder.glob("*.weight"))


def test_chunks_by_part(tmp_path: Path) -> None:
    store, rows, parts = write(tmp_path / "store")
    assert store.shards.chunk_parts.shape == (32, 3)
    assert store.shards.chunk_parts[:4].tolist() == [
        np.bincount(parts[i : i + 16], minlength=3).tolist() for i in range(0, 64, 16)
    ]
    assert store.n_rows_of == dict(zip(("train", "validation", "test"), np.bincount(parts).tolist(), strict=True))
    for mark, part in enumerate(("train", "validation", "test")):
        found = np.concatenate([chunk.ids_RF for chunk in store.chunks(part)])
        assert np.array_equal(found, rows.ids_RF[parts == mark])
    whole = list(store.chunks())
    assert [len(chunk) for chunk in whole] == [16] * 31 + [4]
    assert np.array_equal(np.concatenate([chunk.target_R for chunk in whole]), rows.target_R)  # type: ignore[misc,arg-type]
    with raises(StoreError, "train", "validation", "test", "'tset'"):
        next(store.chunks("tset"))


def test_writing_goes_on_behind_whole_shards(tmp_path: Path) -> None:
    expected, rows, parts = write(tmp_path / "a")
    encoder = expected.encoder
    (tmp_path / "b").mkdir()
    first = StoreWriter(tmp_path / "b", encoder=encoder, config=CONFIG, shard_rows=64, chunk_rows=16)
    first.append({**rows.take(np.arange(150)).arrays, "parts": parts[:150]})
    progress = json.loads(json.dumps(first.progress()))
    first.close()
    second = StoreWriter(
        tmp_path / "b", encoder=encoder, config=CONFIG, shard_rows=64, chunk_rows=16, progress=progress
    )
    assert second.n_rows == 128
    second.append({**rows.take(np.arange(128, 500)).arrays, "parts": parts[128:]})
    second.finish([{"name": "t.csv", "size": 3, "mtime_ns": 4}])
    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()
    }


@pytest.mark.parametrize("name", ["schema.json", "vocabulary.arrow", "shard-00001.ids", "shard-00007.parts"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    store, _, _ = write(tmp_path / "store")
    path = store.folder / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with raises(StoreError, path, "cut off"):
        Store.open(store.folder)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with raises(StoreError, path, "altered"):
        Store.open(store.folder, check=True)
    if "shard" in name:
        Store.open(store.folder)  # the large files are only looked at on demand
    path.write_bytes(whole + b"\0")
    with raises(StoreError, path, "altered"):
        Store.open(store.folder)
    path.unlink()
    with raises(StoreError, path, "missing"):
        Store.open(store.folder)


def test_a_shard_that_vanishes_later_is_named(tmp_path: Path) -> None:
    store, _, _ = write(tmp_path / "store")
    (store.folder / "shard-00001.ids").write_bytes(b"")
    with raises(StoreError, "shard-00001.ids", "cut off"):
        store.read(0, 100)
    (store.folder / "shard-00001.ids").unlink()
    with raises(StoreError, "shard-00001.ids", "cannot be read"):
        store.read(0, 100)
    assert len(store.read(0, 64)) == 64


def test_manifests_that_cannot_be_used(tmp_path: Path) -> None:
    store, _, _ = write(tmp_path / "store")
    path = store.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    cases = {
        "again": {**manifest, "n_rows": 499},
        "format 1": {**manifest, "format": 2},
        "kind 'other'": {**manifest, "kind": "other"},
        "manifest": {"format": 1},
    }
    for fact, content in cases.items():
        path.write_text(json.dumps(content))
        with raises(StoreError, path, fact):
            Store.open(store.folder)
    path.unlink()
    with raises(StoreError, "manifest.json"):
        Store.open(store.folder)
    with raises(StoreError, "no store"):
        Store.open(tmp_path / "nowhere")


def test_is_store(tmp_path: Path) -> None:
    store, _, _ = write(tmp_path / "store")
    assert is_store(store.folder)
    assert is_store(str(store.folder))
    small_frame(50).write_csv(tmp_path / "table.csv")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text('{"format": 1}')
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "manifest.json").write_text("[1]")
    for other in (tmp_path / "table.csv", tmp_path / "bundle", tmp_path / "list", tmp_path / "no", small_frame(5), 3):
        assert not is_store(other)


def test_a_store_needs_a_target(tmp_path: Path) -> None:
    encoder, _, _ = encoded()
    blind = Encoder.from_parts(
        {**encoder.to_json(), "schema": {**encoder.to_json()["schema"], "target": None}}, encoder.vocabulary_frame()
    )
    with raises(StoreError, "target"):
        StoreWriter(tmp_path, encoder=blind, config=CONFIG)


def test_shapes_are_checked_when_shards_are_written(tmp_path: Path) -> None:
    specs = [ArraySpec(name="a", dtype="<i4", width=2), ArraySpec(name="b", dtype="|u1")]
    writer = ShardWriter(tmp_path, specs, 4)
    with raises(ValueError, "b", "(3,)", "(2,)"):
        writer.append({"a": np.zeros((3, 2)), "b": np.zeros(2)})
    writer.append({"a": np.arange(12).reshape(6, 2), "b": np.arange(6)})
    writer.end_shard()
    assert (writer.n_rows, writer.n_shards) == (6, 2)
    assert (tmp_path / "shard-00000.a").read_bytes() == np.arange(8, dtype="<i4").tobytes()
    assert read_rows(tmp_path, specs[0], 3, 5, 4).tolist() == [[6, 7], [8, 9]]


def test_verify_reads_everything(tmp_path: Path) -> None:
    store, _, _ = write(tmp_path / "store")
    store.verify()
    path = store.folder / "shard-00003.target"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    Store.open(store.folder)
    with raises(StoreError, path, "altered"):
        store.verify()


def test_a_store_that_is_replaced_is_not_read_on(tmp_path: Path) -> None:
    store, rows, _ = write(tmp_path / "store")
    assert same(store.read(0, 500), rows)
    chunks = store.chunks("train")
    next(chunks)
    write(tmp_path / "other", config=CONFIG.replace({"data.min_count": 9}))
    for path in (tmp_path / "other").iterdir():
        path.replace(store.folder / path.name)

    for read in (lambda: store.read(0, 5), lambda: store.parts(0, 5), store.verify, lambda: next(chunks)):
        with raises(StoreError, store.folder, "opened"):
            read()
    Store.open(store.folder).read(0, 5)


def test_the_same_store_put_in_place_again_is_read_on(tmp_path: Path) -> None:
    store, rows, _ = write(tmp_path / "store")
    write(tmp_path / "other")
    for path in (tmp_path / "other").iterdir():
        path.replace(store.folder / path.name)
    assert same(store.read(0, 500), rows)
    (store.folder / "manifest.json").unlink()
    (store.folder / "shard-00000.ids").unlink()
    with raises(StoreError, "opened"):  # rather than that a shard cannot be read
        store.read(0, 500)


@pytest.mark.parametrize("name", ["manifest.json", "schema.json", "shard-00001.ids"])
def test_files_that_may_not_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    store, _, _ = write(tmp_path / "store")
    real = Path.open

    def forbid(path: Path, *args: object, **options: object) -> object:
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", forbid)
    monkeypatch.setattr(Path, "read_bytes", lambda path: path.open("rb").read())
    with raises(StoreError, name, "cannot be read", "Permission denied"):
        Store.open(store.folder, check=True)


def test_a_folder_that_may_not_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _, _ = write(tmp_path / "store")

    def forbid(path: Path, **options: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "stat", forbid)
    with raises(StoreError, "manifest.json", "cannot be read", "Permission denied"):
        Store.open(store.folder)
    with raises(UserError, "store", "Permission denied"):
        STORE.state(store.folder)


def test_rows_of_a_store_for_its_own_encoder(tmp_path: Path) -> None:
    store, rows, _ = write(tmp_path / "store")
    again = Encoder.from_parts(
        json.loads(json.dumps(store.encoder.to_json())), store.encoder.vocabulary_frame(), store.encoder.cells()
    )
    assert again.digest == store.encoder.digest
    chunks = list(stored_rows(store, again, with_target=True))
    assert np.array_equal(np.concatenate([chunk.ids_RF for chunk, _ in chunks]), rows.ids_RF)
    assert sum(report.n_rows for _, report in chunks) == store.n_rows
    assert all(chunk.target_R is None for chunk, _ in stored_rows(store, again))
    for part, n_rows in store.n_rows_of.items():
        assert sum(len(chunk) for chunk, _ in stored_rows(store, again, part=part)) == n_rows


def test_unknown_and_missing_values_of_stored_rows() -> None:
    frame = mixed_frame(400)
    config = Config().replace({"data.target": "good", "data.numeric": {"price": "scale"}, "data.min_count": 2})
    encoder = learned(frame, config)
    rows, plain = encoder.encode(frame)
    assert encoder.report(rows) == plain
    assert plain.unknown["word"] > 0
    assert plain.missing["word"] > 0
    assert plain.missing["price"] > 0


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 380},
        {"data.min_count": 5},
        {"data.crosses": [["colour", "shape"]]},
        {"data.numeric": "scale"},
        {"data.missing_values": ["", "w0"]},
        {"data.handle_unknown": "error"},
    ],
)
def test_encoders_that_give_other_ids_have_other_digests(tmp_path: Path, change: dict[str, object]) -> None:
    settings = {"data.target": "good", "data.crosses": "none", "data.min_count": 2}
    n_rows = int(str(change.pop("rows", 400)))
    first = learned(mixed_frame(400), Config().replace(settings))
    second = learned(mixed_frame(400).head(n_rows), Config().replace({**settings, **change}))
    assert first.digest == learned(mixed_frame(400), Config().replace(settings)).digest
    assert first.digest != second.digest
    store, _, _ = write(tmp_path / "store")
    with raises(StoreError, store.folder, "table"):
        next(stored_rows(store, second))

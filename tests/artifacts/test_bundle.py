"""The release format: every byte accounted for, and nothing lost when saving fails."""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from fielddep.artifacts import bundle as bundle_module
from fielddep.artifacts.bundle import FORMAT, Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.errors import BundleError
from fielddep.tables.files import content_checksum
from fielddep.training.fit import fit
from tests.conftest import quick_config, small_frame
from tests.helpers import raises

FILES = ["manifest.json", "schema.json", "vocabulary.arrow", "weights.safetensors"]
FRAME = small_frame(300)
CONFIG = quick_config(data__crosses=[["colour", "shape"]], data__numeric="scale", train__max_epochs=2)


def make(config=CONFIG) -> Bundle:
    fitted = fit(FRAME, config)
    return Bundle.of(fitted)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return make()


@pytest.fixture
def saved(bundle: Bundle, tmp_path: Path) -> Path:
    bundle.save(tmp_path / "model" / "bundle")
    return tmp_path / "model" / "bundle"


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rewrite_manifest(folder: Path, change: Callable[[dict], object]) -> None:
    """Change a manifest as somebody would who also mends its checksum."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    manifest["sha256"] = content_checksum(manifest)
    path.write_text(json.dumps(manifest))


def test_round_trip_is_bit_equal(bundle, saved):
    loaded = Bundle.load(saved)
    assert loaded.config == bundle.config
    assert loaded.encoder.schema == bundle.encoder.schema
    assert loaded.encoder.layout == bundle.encoder.layout
    for name, weight in bundle.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], weight), name
    assert not loaded.model.training
    assert Predictor(loaded).predict(FRAME).equals(Predictor(bundle).predict(FRAME))


def test_loading_and_saving_again_gives_the_same_bytes(saved, tmp_path):
    Bundle.load(saved).save(tmp_path / "again")
    assert content(tmp_path / "again") == content(saved)


def test_equal_fits_give_equal_bytes(saved, tmp_path):
    make().save(tmp_path / "other")
    assert content(tmp_path / "other") == content(saved)


def test_four_files_and_no_pickle(saved):
    assert [path.name for path in sorted(saved.iterdir())] == FILES
    assert [path.name for path in saved.parent.iterdir()] == ["bundle"]
    weights = (saved / "weights.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", weights[:8])
    header = json.loads(weights[8 : 8 + length])
    assert {entry["dtype"] for name, entry in header.items() if name != "__metadata__"} <= {"F32", "I64"}
    assert "embedding.weight" in header
    assert (saved / "vocabulary.arrow").read_bytes()[:6] == b"ARROW1"
    manifest = json.loads((saved / "manifest.json").read_text())
    assert set(manifest) == {"format", "library", "model", "config", "files", "sha256"}
    assert (manifest["format"], manifest["model"]) == (FORMAT, "mdl")


def test_crosses_survive(bundle, saved):
    (cross,), (again,) = bundle.encoder.crosses, Bundle.load(saved).encoder.crosses
    assert (again.left, again.right, again.n_right) == (cross.left, cross.right, cross.n_right) == (0, 1, 6)
    assert again.codes.tolist() == cross.codes.tolist()
    assert again.counts.tolist() == cross.counts.tolist()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with raises(BundleError, name):
        Bundle.load(saved)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [0, 10, -1])
def test_a_cut_off_file_is_named(saved, name, left):
    path = saved / name
    path.write_bytes(path.read_bytes()[:left])
    # A manifest that lacks its last newline alone still says all it said.
    if (name, left) == ("manifest.json", -1):
        path.write_bytes(path.read_bytes()[:-1])
    with raises(BundleError, name):
        Bundle.load(saved)


@pytest.mark.parametrize("name", FILES[1:])
def test_one_altered_bit_is_found(saved, name):
    path = saved / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with raises(BundleError, name, "altered"):
        Bundle.load(saved)


@pytest.mark.parametrize("name", FILES[1:])
def test_bytes_at_the_end_are_found(saved, name):
    with (saved / name).open("ab") as file:
        file.write(b" ")
    with raises(BundleError, name, "altered"):
        Bundle.load(saved)


def test_an_altered_setting_is_found(saved):
    path = saved / "manifest.json"
    text = path.read_text()
    assert '"sparsity": 10.0' in text
    path.write_text(text.replace('"sparsity": 10.0', '"sparsity": 11.0'))
    with raises(BundleError, "manifest.json", "altered"):
        Bundle.load(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", '"format"', "{}", '{"format": 1}', "\x00"])
def test_garbage_for_a_manifest(saved, text):
    (saved / "manifest.json").write_text(text)
    with raises(BundleError, "manifest.json", "altered"):
        Bundle.load(saved)


def test_a_manifest_of_bytes(saved):
    (saved / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with raises(BundleError, "manifest.json", "cut off"):
        Bundle.load(saved)


@pytest.mark.parametrize("version", [FORMAT + 1, 99, "2", None])
def test_a_newer_format(saved, version):
    path = saved / "manifest.json"
    path.write_text(json.dumps({"format": version}))
    with raises(BundleError, "manifest.json", f"format {version}", "upgrade"):
        Bundle.load(saved)


def test_an_unknown_model(saved):
    rewrite_manifest(saved, lambda m: m.update(model="oracle"))
    with raises(BundleError, "'oracle'", "mdl"):
        Bundle.load(saved)


def test_files_that_do_not_fit_together(saved):
    rewrite_manifest(saved, lambda m: m["config"]["model"].update(d_embed=9))
    with raises(BundleError, "embedding.weight"):
        Bundle.load(saved)
    rewrite_manifest(saved, lambda m: m["config"]["model"].update(no_such_setting=9))
    with raises(BundleError, "model.no_such_setting"):
        Bundle.load(saved)


def test_a_file_named_elsewhere_is_never_looked_at(bundle, saved):
    rewrite_manifest(saved, lambda m: m["files"].update({"../../secret": {"bytes": 1, "sha256": "0"}}))
    assert Bundle.load(saved).config == bundle.config


def test_what_is_no_bundle(tmp_path):
    with raises(BundleError, "no bundle", "nowhere"):
        Bundle.load(tmp_path / "nowhere")
    with raises(BundleError, "no bundle", "manifest.json"):
        Bundle.load(tmp_path)
    (tmp_path / "file").write_text("x")
    with raises(BundleError, "no bundle"):
        Bundle.load(tmp_path / "file")


# --- saving ---------------------------------------------------------------------------------------------------


def full_disk(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_old_bundle(bundle, saved, monkeypatch):
    before = content(saved)
    monkeypatch.setattr(bundle_module, "save_file", full_disk)
    with raises(BundleError, "No space left on device", "untouched"):
        bundle.save(saved)
    monkeypatch.undo()
    assert content(saved) == before
    assert [path.name for path in saved.parent.iterdir()] == ["bundle"]
    assert Predictor(saved).predict(FRAME).equals(Predictor(bundle).predict(FRAME))


@pytest.mark.parametrize("target", ["save_encoder", "file_facts"])
def test_any_failing_write_leaves_the_old_bundle(bundle, saved, monkeypatch, target):
    before = content(saved)
    monkeypatch.setattr(bundle_module, target, full_disk)
    with raises(BundleError, "No space left on device"):
        bundle.save(saved)
    assert content(saved) == before


def test_a_full_disk_at_the_first_save_leaves_nothing(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_module, "save_file", full_disk)
    with raises(BundleError, "No space left"):
        bundle.save(tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_failing_swap_puts_the_old_bundle_back(bundle, saved, monkeypatch):
    before = content(saved)
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name != "bundle" and target == saved and not self.name.endswith(".old"):
            raise OSError(errno.EIO, "Input/output error")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with raises(BundleError, "Input/output error"):
        bundle.save(saved)
    monkeypatch.undo()
    assert content(saved) == before


def test_saving_replaces_a_bundle(saved):
    make(CONFIG.replace({"train.seed": 3})).save(saved)
    assert Bundle.load(saved).config.train.seed == 3
    assert [path.name for path in saved.parent.iterdir()] == ["bundle"]


def test_a_folder_of_other_things_is_never_replaced(bundle, saved, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.tex").write_text("years of work")
    (tmp_path / "letter").write_text("dear reader")
    (saved / "notes.txt").write_text("mine")
    for path, what in ((tmp_path / "work", "thesis.tex"), (tmp_path / "letter", "letter"), (saved, "notes.txt")):
        with raises(BundleError, what):
            bundle.save(path)
    assert (tmp_path / "work" / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "letter").read_text() == "dear reader"
    assert (saved / "notes.txt").read_text() == "mine"


def test_an_empty_folder_is_taken_and_a_file_in_the_way_named(bundle, tmp_path):
    (tmp_path / "empty").mkdir()
    bundle.save(tmp_path / "empty")
    assert Bundle.load(tmp_path / "empty").config == bundle.config
    (tmp_path / "file").write_text("x")
    with raises(BundleError, "cannot write"):
        bundle.save(tmp_path / "file" / "bundle")


def test_a_vocabulary_of_strange_texts_survives(tmp_path):
    odd = ["", "\n", "naïve 漢字 🎉", "a" * 10_000, "<rare>", "1.0", "\x00", "'; drop"]
    frame = FRAME.with_columns(colour=pl.Series([odd[i % len(odd)] for i in range(300)]))
    fitted = fit(frame, quick_config(train__max_epochs=1))
    made = Bundle.of(fitted)
    made.save(tmp_path / "bundle")
    loaded = Bundle.load(tmp_path / "bundle")
    assert loaded.encoder.values("colour").to_list() == made.encoder.values("colour").to_list()
    assert Predictor(loaded).predict(frame).equals(Predictor(made).predict(frame))


def test_a_kill_between_the_two_renames_loses_nothing(saved: Path, bundle: Bundle):
    aside = saved.with_name(f".{saved.name}.old")
    saved.rename(aside)
    assert Bundle.load(saved).config == bundle.config
    assert not saved.exists(), "a save in another process may be about to put the new one there"
    bundle.save(saved)
    assert Bundle.load(saved).config == bundle.config
    assert not aside.exists()

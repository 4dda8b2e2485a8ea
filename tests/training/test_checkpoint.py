"""Checkpoints: whole or not there, and damage is named."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from fielddep.errors import CheckpointError, UserError
from fielddep.observer import Observer
from fielddep.training import checkpoint as checkpoint_module
from fielddep.training.checkpoint import CheckpointFolder, Evaluation, TensorFile
from fielddep.training.fit import fit, train
from fielddep.training.prepare import prepare
from tests.conftest import quick_config, small_frame
from tests.helpers import raises

TENSORS = {"model/a": torch.arange(6.0).reshape(2, 3), "random": torch.get_rng_state()}
STATE = {"step": 7, "best_step": 7, "lr": 0.1, "history": [{"step": 7}]}
BEST = {"a": torch.ones(2, 3)}


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoint")


def save(folder: CheckpointFolder, tensors=TENSORS, state=STATE, best=BEST) -> None:
    """The best weights first, as the trainer does."""
    folder.save_best(best, state["best_step"])
    folder.save(tensors, state)


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.folder.iterdir())


def test_nothing_to_load(folder):
    assert folder.load() is None


def test_round_trip(folder):
    save(folder)
    assert folder.load() == STATE
    assert set(folder.tensors()) == set(TENSORS)
    assert all(torch.equal(folder.tensors()[name], tensor) for name, tensor in TENSORS.items())
    assert torch.equal(folder.load_best(7)["a"], BEST["a"])


def test_tensors_of_a_file_are_read_one_by_one(folder):
    tensors = {
        "model/a": torch.randn(3, 4),
        "model/count": torch.tensor(7),
        "model/flag": torch.tensor([True, False]),
        "model/none": torch.empty(0, 2),
        "random": torch.get_rng_state(),
    }
    save(folder, tensors)
    file = TensorFile(folder.path)
    assert set(file) == set(tensors)
    for name, tensor in tensors.items():
        assert file.shape(name) == tuple(tensor.shape)
        assert file[name].dtype == tensor.dtype
        assert torch.equal(file[name], tensor)
    part = folder.tensors("model/")
    assert sorted(part) == ["a", "count", "flag", "none"]
    with pytest.raises(KeyError):
        part["random"]
    for own in (torch.zeros(3, 4), torch.zeros(4, 3).T, torch.zeros(3, 4, dtype=torch.float64)):
        memory = own.data_ptr()
        part.read_into("a", own)
        assert torch.equal(own.float(), tensors["model/a"])
        assert own.data_ptr() == memory


def test_a_file_that_shrinks_after_it_was_opened(folder):
    save(folder)
    file = TensorFile(folder.path)
    folder.path.write_bytes(folder.path.read_bytes()[:-3])
    with raises(CheckpointError, "cut off", "random", "--force"):
        file["random"]
    folder.path.unlink()
    with raises(CheckpointError, "cannot be read", "No such file"):
        file["random"]


def test_views_are_saved_as_what_they_show(folder):
    whole = torch.arange(12.0).reshape(3, 4)
    save(folder, {"view": whole.T}, best={"a": whole[:, ::2]})
    assert torch.equal(folder.tensors()["view"], whole.T)
    assert torch.equal(folder.load_best(7)["a"], whole[:, ::2])


def test_best_weights_are_written_when_new_and_the_old_ones_removed(folder):
    save(folder)
    folder.save(TENSORS, {**STATE, "step": 8})
    assert names(folder) == ["best-7.safetensors", "checkpoint.safetensors"]
    save(folder, state={**STATE, "step": 9, "best_step": 9}, best={"a": torch.zeros(2, 3)})
    assert names(folder) == ["best-9.safetensors", "checkpoint.safetensors"]
    assert folder.load() == {**STATE, "step": 9, "best_step": 9}
    assert folder.load_best(9)["a"].sum() == 0


def test_a_kill_between_the_two_writes_leaves_the_old_checkpoint(folder, monkeypatch):
    save(folder)
    real = checkpoint_module.write_atomically

    def killed(path: Path, write) -> None:
        if path.name == "checkpoint.safetensors":
            raise KeyboardInterrupt
        real(path, write)

    monkeypatch.setattr(checkpoint_module, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        save(folder, state={**STATE, "step": 9, "best_step": 9}, best={"a": torch.zeros(2, 3)})
    assert folder.load() == STATE
    assert torch.equal(folder.load_best(7)["a"], BEST["a"])


def test_a_full_disk_leaves_the_old_checkpoint(folder, monkeypatch):
    save(folder)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "save_file", full)
    with raises(UserError, "No space left on device", "untouched"):
        folder.save(TENSORS, {**STATE, "step": 8})
    assert folder.load() == STATE
    assert names(folder) == ["best-7.safetensors", "checkpoint.safetensors"]


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "best-7.safetensors"])
@pytest.mark.parametrize("left", [0, 5, -3])
def test_a_damaged_file_is_no_checkpoint(folder, name, left):
    save(folder)
    path = folder.folder / name
    path.write_bytes(path.read_bytes()[:left])
    with raises(CheckpointError, "checkpoint.safetensors", "cannot be read", "--force"):
        folder.load()


def test_missing_best_weights(folder):
    save(folder)
    (folder.folder / "best-7.safetensors").unlink()
    with raises(CheckpointError, "cannot be read"):
        folder.load()


class Stop(Observer):
    def on_evaluation(self, evaluation: Evaluation) -> None:
        raise KeyboardInterrupt


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    frame = small_frame(200)
    with pytest.raises(KeyboardInterrupt):
        fit(frame, quick_config(), checkpoints=tmp_path, observer=Stop())
    with raises(CheckpointError, "does not fit", "--force"):
        fit(frame, quick_config(model__d_embed=7), checkpoints=tmp_path, resume=True)


def test_resuming_goes_on_from_the_last_evaluation(tmp_path):
    frame, config = small_frame(200), quick_config(model__dropout=0.3, train__batch_size=32)
    straight = train(prepare(frame, config))
    with pytest.raises(KeyboardInterrupt):
        train(prepare(frame, config), checkpoints=tmp_path, observer=Stop())
    resumed = train(prepare(frame, config), checkpoints=tmp_path, resume=True)
    for name, weight in straight.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name
    assert [e.validation for e in resumed.history] == [e.validation for e in straight.history]

"""The best weights: the same from memory and from disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fielddep.errors import CheckpointError
from fielddep.nn import build_model
from fielddep.training.checkpoint import BestWeights, CheckpointFolder, copy_weights
from fielddep.training.fit import fit
from tests.conftest import quick_config, small_frame
from tests.helpers import raises


def model_of(layout):
    return build_model(layout, 1, quick_config(model__batch_norm="all").model, seed=0)


def fill(model, value: float) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(value)


@pytest.mark.parametrize("on_disk", [True, False])
def test_restore_gives_what_was_kept_last(layout, tmp_path, on_disk):
    model = model_of(layout)
    best = BestWeights(CheckpointFolder(tmp_path) if on_disk else None)
    for step, value in ((3, 1.0), (5, 2.0)):
        fill(model, value)
        best.keep(model, step)
    fill(model, 9.0)
    memory = model.embedding.weight.data_ptr()
    best.restore(model, 5)
    assert all((weight == 2.0).all() for weight in model.parameters())
    assert model.embedding.weight.data_ptr() == memory, "copied in place, as optimisers hold the tensors"
    assert sorted(path.name for path in tmp_path.iterdir()) == (
        ["best-3.safetensors", "best-5.safetensors"] if on_disk else []
    )


def test_nothing_is_kept_in_memory_where_there_is_a_folder(layout, tmp_path):
    best = BestWeights(CheckpointFolder(tmp_path))
    best.keep(model_of(layout), 1)
    assert best._kept == {}


def test_weights_on_disk_that_are_gone(layout, tmp_path: Path):
    best = BestWeights(CheckpointFolder(tmp_path))
    model = model_of(layout)
    best.keep(model, 1)
    (tmp_path / "best-1.safetensors").unlink()
    with raises(CheckpointError, "best-1.safetensors", "cannot be read", "--force"):
        best.restore(model, 1)


def test_copying_refuses_what_does_not_fit():
    own = {"a": torch.zeros(2, 3)}
    with raises(KeyError, "b"):
        copy_weights(own, {"b": torch.zeros(2, 3)})
    with raises(RuntimeError, "a", "(1, 3)", "(2, 3)"):
        copy_weights(own, {"a": torch.ones(1, 3)})
    assert own["a"].sum() == 0


@pytest.mark.parametrize("average", [0.0, 0.8])
def test_training_ends_alike_with_and_without_a_folder(tmp_path, average):
    config = quick_config(
        train__average_decay=average, train__plateau_patience=1, train__lr=0.3, train__max_epochs=8, train__patience=4
    )
    in_memory = fit(small_frame(300), config)
    on_disk = fit(small_frame(300), config, checkpoints=tmp_path)
    assert not all(evaluation.best for evaluation in in_memory.history), "a plateau must have been restored from"
    assert [e.validation for e in in_memory.history] == [e.validation for e in on_disk.history]
    for name, weight in in_memory.model.state_dict().items():
        assert torch.equal(on_disk.model.state_dict()[name], weight), name

"""The output a model starts from, taken from rows in memory or block by block from a store."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fielddep.encoding.rows import EncodedRows, Layout
from fielddep.encoding.target import Target
from fielddep.training.metrics import Metrics, base_output, base_rate_metrics, mean_loss
from tests.conftest import quick_config, small_frame
from tests.stores import write_store

LAYOUT = Layout(names=("a", "b"), n_ids=(3, 3))


def table(target: list[float], weight: list[float] | None = None, dtype: type = np.float32) -> EncodedRows:
    return EncodedRows(
        layout=LAYOUT,
        arrays={"ids": np.ones((len(target), 2), dtype=np.int32), "target": np.array(target, dtype=dtype)},
    ).with_arrays(weight=None if weight is None else np.array(weight, dtype=np.float32))


def test_base_output_by_hand():
    binary = Target(name="y", task="binary", classes=(0, 1))
    assert float(base_output(binary, [table([1, 0, 0, 0])])) == pytest.approx(math.log(1 / 3))
    assert float(base_output(binary, [table([1, 0, 0, 0], [3.0, 1, 1, 1])])) == pytest.approx(0.0)
    assert float(base_output(binary, [table([1, 1])])) == pytest.approx(math.log((1 - 1e-6) / 1e-6), rel=0.02)
    regression = Target(name="y", task="regression")
    assert base_output(regression, [table([1, 2, 6])]).tolist() == [3.0]
    classes = Target(name="y", task="multiclass", classes=("a", "b", "c"))
    shares = base_output(classes, [table([0, 2, 2, 2], dtype=np.int64)]).exp()
    assert shares.tolist() == pytest.approx([0.25, 1e-6, 0.75])


@pytest.mark.parametrize("target", ["good", "shape", "size"])
def test_a_store_gives_what_the_table_gives(tmp_path, target):
    frame = small_frame(200).with_columns(w=small_frame(200)["size"].abs() + 0.1)
    store = write_store(tmp_path / "store", frame, quick_config(data__target=target, data__weight="w"), chunk_rows=16)
    known = store.encoder.schema.target
    part, rows = store.part(), store.read(0, store.n_rows)
    base = base_output(known, part.chunks())
    torch.testing.assert_close(base, base_output(known, [rows]), rtol=1e-6, atol=1e-7)
    expected = base_rate_metrics(known, base, [rows])
    assert base_rate_metrics(known, base, part.chunks()) == pytest.approx(expected, rel=1e-6)


def test_a_batch_without_weight_has_no_loss():
    assert float(mean_loss(torch.ones(2, 1), torch.ones(2), torch.zeros(2), "binary")) == 0.0


def test_classes_of_very_many_rows_are_counted():
    """Beyond 2**24 a float32 does not change by adding one."""
    target = Target(name="y", task="multiclass", classes=("a", "b"))
    rows = table([0, 0, 0, 0, 1], [2.0**24, 1, 1, 1, 2.0**24 + 4], dtype=np.int64)
    assert base_output(target, [rows]).tolist() == pytest.approx([math.log((2**24 + 3) / (2**25 + 7))] * 2, abs=5e-8)
    n_rows = torch.zeros(2, dtype=torch.float64)
    n_rows += torch.tensor([2.0**24 + 3, 2.0**24 + 4])
    expected = (n_rows / n_rows.sum()).float().log()
    assert torch.equal(base_output(target, [rows]), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_base_rate_is_measured_like_any_prediction(weighted, rate, monkeypatch):
    """But without keeping the scores, which are all the same."""
    rng = torch.Generator().manual_seed(0)
    labels = (torch.rand(1000, generator=rng) < rate).float().tolist()
    rows = table(labels, torch.rand(1000, generator=rng).tolist() if weighted else None)
    target, base_C = Target(name="y", task="binary", classes=(0, 1)), torch.tensor([-1.25])
    metrics = Metrics(target)
    metrics.update(base_C.expand(1000, 1), rows.target_R, rows.weight_R)
    expected = metrics.result()
    monkeypatch.setattr(Metrics, "_keep", None)
    found = base_rate_metrics(target, base_C, [rows])
    assert found == pytest.approx(expected, abs=1e-12)
    assert set(found) == {"logloss", "loss", "calibration_error"} | (
        {"auc", "average_precision"} if rate == 0.3 else set()
    )

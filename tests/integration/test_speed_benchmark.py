"""The speed benchmark measures what it says: equal models, skewed shapes, honest arithmetic, kept figures.

Every script's core runs once on a tiny shape. Does not check any committed figure, nor the worker of DeepCTR-Torch,
which lives in an environment of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "speed"))

import flops
import growth
import parts
import results
import rowwise
import sections
import shapes
import timing
from fielddep.nn import build_model
from fielddep.store.loader import Loader
from fielddep.training.metrics import mean_loss
from fielddep.training.trainer import Trainer
from programs import TARGET, build_programs, config_of
from tests.conftest import double
from textbook import TextbookMDL, TextbookTrainer, copy_weights

SPEED = results.HERE
TINY = shapes.Shape(name="tiny", fields={"a": 30, "b": 7, "c": 12, "d": 5}, d_embed=6, batch_rows=32)
PROGRAMS = ["fielddep", "fielddep-plain", "textbook"]


def load(name: str) -> ModuleType:
    """A script whose name another folder has as well."""
    spec = importlib.util.spec_from_file_location(f"speed_{name}", SPEED / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def textbook_like(shape: shapes.Shape, config) -> TextbookMDL:
    return TextbookMDL(
        n_ids=shape.n_ids,
        n_fields=len(shape.fields),
        d_embed=shape.d_embed,
        n_inner_steps=shape.n_inner_steps,
        inner_lr=config.model.inner_lr,
        sparsity=config.model.sparsity,
    )


def both_models(shape: shapes.Shape):
    """Ours and the textbook form with the same random weights, large enough that every part of the loop matters."""
    config = config_of(shape)
    ours = build_model(shape.layout, 1, config.model, seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in ours.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    textbook = textbook_like(shape, config)
    copy_weights(ours, textbook)
    return ours, textbook


# --- the textbook form --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_inner_steps", [0, 1, 4])
def test_textbook_computes_the_same_function(n_inner_steps):
    shape = replace(TINY, n_inner_steps=n_inner_steps)
    ours, textbook = both_models(shape)
    ours, textbook = ours.double(), textbook.double()
    (batch,) = shape.batches(1)
    logits = {"ours": ours(double(batch.inputs))[:, 0], "textbook": textbook(batch.inputs.ids_BF)}
    torch.testing.assert_close(logits["ours"], logits["textbook"], rtol=1e-9, atol=1e-9)
    mean_loss(logits["ours"].unsqueeze(1), batch.target_B.double(), None, "binary").backward()
    torch.nn.functional.binary_cross_entropy_with_logits(logits["textbook"], batch.target_B.double()).backward()
    pairs = {
        "embedding": (ours.embedding.weight.grad.to_dense(), textbook.embedding.weight.grad),
        "first_order": (ours.first_order.weight.grad.to_dense(), textbook.first_order.weight.grad),
        "phi": (ours.interactions.phi_PDD.grad.transpose(1, 2), textbook.phi_PDD.grad),
        "w0": (ours.refinement.weight.grad, textbook.w0_FF.grad),
        "bias": (ours.bias.grad, textbook.bias.grad),
        **{f"mlp{i}": (ours.mlp[i].weight.grad, textbook.mlp[i].weight.grad) for i in (0, 2, 4)},
    }
    for name, (mine, theirs) in pairs.items():
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")
    assert textbook.w0_FF.grad.abs().max() > 0 or n_inner_steps == 0


def test_textbook_takes_the_same_step():
    config = config_of(TINY).replace({"train.embedding_l2": 0.0, "train.first_order_l2": 0.0})
    ours, textbook = both_models(TINY)
    loader = Loader(TINY.table(TINY.batch_rows), batch_size=TINY.batch_rows)
    trainer = Trainer(ours, TARGET, config.train, train=loader, validation=loader.rows)
    (batch,) = TINY.batches(1)
    before = textbook.embedding.weight.detach().clone()
    trainer.train_step(batch)
    TextbookTrainer(textbook, lr=config.train.lr).train_step(batch.inputs.ids_BF, batch.target_B)
    moved = torch.zeros(TINY.n_ids, dtype=torch.bool).index_fill_(0, batch.inputs.ids_BF.flatten(), True)
    assert torch.equal(before[~moved], textbook.embedding.weight.detach()[~moved])
    # Adagrad's first step has the length of the rate whatever the gradient, so only its sign could differ.
    same = (ours.embedding.weight - textbook.embedding.weight).abs() < 1e-4
    assert same.float().mean() > 0.999
    longest = (ours.embedding.weight.detach() - before)[moved].abs().max()
    assert float(longest) == pytest.approx(config.train.lr, rel=1e-3)


# --- shapes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_fields", "n_ids", "d_embed"),
    [
        ("frappe", 10, 5_382, 40),
        ("ml-rating", 6, 13_461, 20),
        ("avazu", 22, 2_018_012, 40),
        ("criteo", 39, 395_894, 20),
        ("kdd2012", 11, 2_047_519, 120),
    ],
)
def test_shapes_have_the_published_sizes(name, n_fields, n_ids, d_embed):
    shape = shapes.SHAPES[name]
    assert (len(shape.fields), shape.n_ids, shape.d_embed) == (n_fields, n_ids, d_embed)
    assert (shape.n_inner_steps, shape.batch_rows) == (4, 2048)
    assert min(shape.fields.values()) >= 2


def test_ids_follow_the_law_and_the_seed():
    shape = shapes.Shape(name="skewed", fields={"a": 1000, "b": 3}, d_embed=4)
    table = shape.table(50_000)
    drawn = np.bincount(table.ids_RF[:, 0], minlength=1000) / 50_000
    expected = np.arange(1, 1001) ** -1.05 / np.sum(np.arange(1, 1001) ** -1.05)
    np.testing.assert_allclose(drawn[:20], expected[:20], atol=0.004)
    assert len(drawn) == 1000
    assert np.array_equal(table.ids_RF, shape.table(50_000).ids_RF)
    assert not np.array_equal(table.ids_RF, shape.table(50_000, seed=1).ids_RF)
    first, second = shape.batches(2, batch_rows=8)
    assert torch.equal(first.inputs.ids_BF, shape.table(16).batch(slice(0, 8)).inputs.ids_BF)
    assert second.inputs.ids_BF[:, 1].min() >= 1000


def test_uniform_shape_shares_all_ids():
    shape = shapes.uniform_shape(n_fields=3, n_ids=10, d_embed=2)
    assert sorted(shape.fields.values()) == [3, 3, 4]


# --- arithmetic, times and files ----------------------------------------------------------------------------------


def test_operations_of_a_row_by_hand():
    found = flops.training_flops(shapes.Shape(name="s", fields=dict.fromkeys("ab", 3), d_embed=5, n_inner_steps=1))
    refine = 2 * 5 * 4 + 2 * 2 * 8 + 6 * 4
    mlp = 2 * ((1 + 2) * 100 + 100 * 100 + 100)
    assert found == {
        "gather": 0, "refine": 3 * refine, "interact": 3 * (2 * 25 + 2 * 5), "mlp": 3 * mlp,
        "optimiser": 6 * 2 * 6, "other": 0,
    }  # fmt: skip
    assert sum(flops.training_flops(shapes.SHAPES["avazu"]).values()) == pytest.approx(3.3e6, rel=0.05)
    assert sum(flops.training_flops(shapes.SHAPES["frappe"]).values()) == pytest.approx(0.66e6, rel=0.05)


def test_programs_take_turns_and_warm_up_is_not_timed():
    order = []
    works = {name: (lambda number, name=name: order.append((number, name))) for name in "xy"}
    seconds = timing.in_turn(works, rounds=2, warm_up=1)
    assert order == [(0, "x"), (0, "y"), (1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert {name: len(found) for name, found in seconds.items()} == {"x": 2, "y": 2}


def test_medians_and_spread_by_hand():
    assert timing.rates([1.0, 2.0, 4.0, 8.0, 100.0], 80) == {
        "rows_per_s": 20.0, "rows_per_s_low": 10.0, "rows_per_s_high": 40.0,
    }  # fmt: skip
    found = timing.latencies([0.001] * 98 + [0.002, 0.003])
    assert found == {"p50_ms": 1.0, "p99_ms": pytest.approx(2.01)}


def test_a_matrix_product_gives_a_rate():
    assert timing.matmul_gflops(64, repeats=1) > 0


def test_newer_figures_replace_the_same_ones_only(tmp_path):
    path = tmp_path / "results.csv"
    old = {"shape": "s", "what": "train", "program": "p", "rows_per_s": 1.0, "peak_mb": 7.0}
    results.write_rows(path, [old, {**old, "program": "q", "rows_per_s": 2.0}])
    results.write_rows(path, [{**old, "rows_per_s": 5_261_023.4, "peak_mb": None}])
    rows = results.read_rows(path)
    assert [(row["program"], row["rows_per_s"], row["peak_mb"]) for row in rows] == [
        ("p", "5261023", ""), ("q", "2", "7")
    ]  # fmt: skip
    named = {"shape", "what", "program", "rows_per_s", "p50_ms", "p99_ms", "peak_mb", "threads", "machine", "commit"}
    assert named <= set(rows[0])


def test_rows_of_a_whole_are_replaced_together(tmp_path):
    path, columns = tmp_path / "curves.csv", ("program", "point", "loss")
    options = {"columns": columns, "key": columns[:2], "whole": columns[:1]}
    results.write_rows(path, [{"program": "p", "point": n, "loss": 0.5} for n in (10, 9, 2)], **options)
    results.write_rows(path, [{"program": "q", "point": 1, "loss": 0.1}], **options)
    assert [row["point"] for row in results.read_rows(path)] == ["2", "9", "10", "1"]
    results.write_rows(path, [{"program": "p", "point": 0, "loss": 0.25}], **options)
    assert [tuple(row.values()) for row in results.read_rows(path)] == [("p", "0", "0.25"), ("q", "1", "0.1")]


# --- the scripts on a tiny shape ----------------------------------------------------------------------------------


def test_run_measures_every_program(monkeypatch):
    run = load("run")
    monkeypatch.setattr(run, "PREDICT_ROWS", 64)
    monkeypatch.setattr(rowwise, "WARM_UP_ROWS", 1)
    arguments = argparse.Namespace(
        what=["train", "predict", "row"], programs=PROGRAMS, rounds=2, rows=3, threads=1, no_peak=True
    )
    rows = run.measure(TINY, arguments)
    assert [(row["what"], row["program"]) for row in rows] == [(w, p) for w in arguments.what for p in PROGRAMS]
    assert all(row["rows_per_s"] > 0 and row["shape"] == "tiny" and row["threads"] == 1 for row in rows)
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows if row["what"] == "row")
    assert [row["batch_rows"] for row in rows] == [32] * 3 + [64] * 3 + [1] * 3


def test_two_forms_of_the_library_share_weights_and_agree():
    programs = build_programs(TINY, PROGRAMS)
    assert programs["fielddep"].trainer is programs["fielddep-plain"].trainer
    (batch,) = TINY.batches(1)
    torch.testing.assert_close(programs["fielddep"].predict(batch), programs["fielddep-plain"].predict(batch))
    before = programs["textbook"].predict(batch)
    for program in programs.values():
        program.fit()
    assert len(programs["fielddep"].trainer.history) == 1
    assert not torch.equal(before, programs["textbook"].predict(batch))


def test_single_rows_are_encoded_to_the_ids_drawn():
    encoder = rowwise.encoder_of(TINY)
    encoded, report = encoder.encode(pl.concat(rowwise.one_row_frames(TINY, 20)))
    assert np.array_equal(encoded.ids_RF, TINY.table(20, seed=2).ids_RF + 2)
    assert set(report.unknown.values()) == {0}
    frame = rowwise.one_row_frames(TINY, 1)[0]
    for answer in rowwise.answers(TINY, PROGRAMS).values():
        assert answer(frame).columns == ["prediction", "probability_0", "probability_1"]


@pytest.mark.parametrize("program", ["fielddep", "fielddep-plain"])
def test_parts_make_a_whole(program, monkeypatch):
    monkeypatch.setattr(parts, "matmul_gflops", lambda: 0.5)
    rows = parts.measure(TINY, program, rounds=2)
    assert [row["part"] for row in rows] == [*flops.PARTS, "step"]
    assert sum(row["share"] for row in rows[:-1]) == pytest.approx(1.0, abs=1e-3)
    shares = {row["part"]: row["share"] for row in rows}
    assert all(shares[part] > 0 for part in ("gather", "interact", "mlp", "optimiser"))
    assert {row["matmul_gflops"] for row in rows} == {0.5}
    assert rows[-1]["flops_per_row"] == sum(row["flops_per_row"] for row in rows[:-1])


def test_backward_work_counts_for_the_part_that_caused_it():
    network = torch.nn.Sequential(torch.nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)

    class SlowBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs):
            return inputs.clone()

        @staticmethod
        def backward(ctx, gradient):
            torch.randn(800, 800) @ torch.randn(800, 800)
            return gradient

    network.append(type("Slow", (torch.nn.Module,), {"forward": lambda self, inputs: SlowBackward.apply(inputs)})())
    found = sections.section_seconds(lambda: network(x).sum().backward())
    assert found["mlp"] > 0.5 * found["whole"]
    assert sections.section_seconds(lambda: (x * 2).sum().backward()).keys() == {"whole"}


def test_growth_measures_and_draws_every_point(tmp_path):
    path = tmp_path / "growth.csv"
    base = growth.Point(n_ids=50, n_fields=3, d_embed=4, batch_rows=16)
    for name, values in (("inner_steps", (0, 2)), ("batch", (8, 16))):
        rows = growth.measure(name, base, values, rounds=1)
        assert [row["value"] for row in rows] == list(values)
        assert [row[growth.AXES[name].setting] for row in rows] == list(values)
        results.write_rows(path, [{**row, "threads": 1} for row in rows], columns=growth.COLUMNS, key=growth.KEY)
    drawn = growth.draw(path, tmp_path / "plots")
    assert [file.name for file in drawn] == ["growth-inner_steps.png", "growth-batch.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)

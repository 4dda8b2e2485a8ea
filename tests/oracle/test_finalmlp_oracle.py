"""FinalMLP against a row-by-row form of its formula, with and without fields as context of the gates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.config.networks import FinalMLPConfig
from fielddep.config.settings import Config
from fielddep.encoding.rows import Inputs
from fielddep.errors import ConfigError
from fielddep.nn.baselines.finalmlp import FieldGate, FinalMLP
from fielddep.training.fit import fit
from tests.conftest import random_table, small_frame
from tests.helpers import raises
from tests.oracle.slow_forms import array, check_rows, looked_up, run_layers, shaken

SIZES = {"d_embed": 3, "hidden": (7, 6), "hidden_2": (4,), "gate_hidden": (5,), "n_heads": 2}
CONTEXTS = {
    "none": {},
    "one": {"context_1": ("user",)},
    "numerical": {"context_1": ("user", "price"), "context_2": ("hour",)},
}


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("contexts", CONTEXTS.values(), ids=CONTEXTS)
def test_logits_row_by_row(layout, n_outputs, contexts):
    config = FinalMLPConfig(**SIZES, embedding_init_scale=0.5, batch_norm="all", **contexts)
    model = shaken(FinalMLP(layout, n_outputs, config))

    def expected(batch, row):
        x = np.concatenate(looked_up(model.embedding, layout, batch, row))
        h_1 = run_layers(model.mlp_1, x * slow_gate(model.gate_1, config.context_1, layout, batch, row))
        h_2 = run_layers(model.mlp_2, x * slow_gate(model.gate_2, config.context_2, layout, batch, row))
        left, right = array(model.fusion.left.weight), array(model.fusion.right.weight)
        return array(model.bias) + left @ h_1 + right @ h_2 + slow_bilinear(model, h_1, h_2)

    check_rows(model, expected)


def slow_gate(gate: FieldGate, context, layout, batch, row) -> np.ndarray:
    """Factors of a row; the gate's own table has the ids of its fields alone, after a row of zeros."""
    fields = sorted(layout.names.index(name) for name in context)
    kept = [layout.offsets[f] + local for f in fields for local in range(layout.n_ids[f])]
    vectors = [] if context else [array(gate.vector_1D)[0]]
    for field in (layout.names.index(name) for name in context):
        number = float(batch.inputs.numbers_BN[row, 0]) if field in layout.numerical else 1.0
        vectors.append(number * array(gate.table.weight)[1 + kept.index(int(batch.inputs.ids_BF[row, field]))])
    return 2 / (1 + np.exp(-run_layers(gate.mlp, np.concatenate(vectors))))


def slow_bilinear(model: FinalMLP, h_1: np.ndarray, h_2: np.ndarray) -> np.ndarray:
    """The sum over both heads of x_k^T W_k y_k, entry by entry."""
    weight = array(model.fusion.weight_KLM).reshape(2, 3, model.n_outputs, 2)
    outputs = np.zeros(model.n_outputs)
    for c in range(model.n_outputs):
        for k in range(2):
            for i in range(3):
                for j in range(2):
                    outputs[c] += h_1[3 * k + i] * weight[k, i, c, j] * h_2[2 * k + j]
    return outputs


def test_only_the_fields_of_its_context_open_a_gate(layout):
    torch.manual_seed(0)
    gate = FieldGate(layout, 3, [0], (5,))
    gate.table.init_weights("normal", 1.0)
    ids_BF = torch.tensor([[1, 7, 15, 17], [1, 9, 16, 20], [2, 7, 15, 17]])
    same, also, other = gate(Inputs(ids_BF, torch.randn(3, 1)))
    assert torch.equal(same, also)
    assert not torch.allclose(same, other)
    factors = gate(Inputs(ids_BF, torch.ones(3, 1)))
    assert bool(((factors > 0) & (factors < 2)).all())


def test_table_of_a_context_has_rows_for_its_fields_alone(layout):
    model = FinalMLP(layout, 1, FinalMLPConfig(**SIZES, context_1=("user", "hour")))
    shapes = {name: tuple(table.weight.shape) for name, table in model.tables()}
    assert shapes == {"embedding": (22, 3), "gate_1.table": (1 + 6 + 5, 3)}
    batch = random_table(layout, 20).batch(slice(None))
    model(batch.inputs).sum().backward()
    gradient = model.gate_1.table.weight.grad.to_dense()
    assert torch.equal(gradient[0], torch.zeros(3)) and bool(gradient[1:].abs().sum() > 0)


def test_context_survives_the_bundle(tmp_path):
    frame = small_frame(300)
    settings = {f"model.{key}": value for key, value in SIZES.items()} | {"model.context_2": ["shape"]}
    config = Config().replace({"data.target": "good", "train.max_epochs": 1, "model.name": "finalmlp", **settings})
    fitted = fit(frame, config)
    bundle = Bundle.of(fitted)
    bundle.save(tmp_path / "b")
    rows = frame.drop("good").head(20)
    assert Predictor(tmp_path / "b").predict(rows).equals(Predictor(bundle).predict(rows))


def test_widths_that_the_heads_do_not_divide_are_refused(layout):
    with raises(ConfigError, "model.n_heads", 4, "model.hidden", 6):
        FinalMLP(layout, 1, FinalMLPConfig(**{**SIZES, "n_heads": 4}))


def test_unknown_field_of_a_context_is_refused(layout):
    with raises(ConfigError, "model.context_2", "user", "'usr'"):
        FinalMLP(layout, 1, FinalMLPConfig(**SIZES, context_2=("usr",)))


def test_batch_norm_does_not_undo_the_gates(layout):
    """In training a gate without context scales every input by one factor: a norm of the inputs would take it out."""
    config = FinalMLPConfig(**SIZES, embedding_init_scale=0.5, batch_norm="all", dropout=0.0)
    model = shaken(FinalMLP(layout, 1, config))
    batch = random_table(layout, 200).batch(slice(None))
    model.train()
    gated = model(batch.inputs).detach()
    with torch.no_grad():
        model.gate_1.mlp[-1].bias += torch.linspace(-2.0, 2.0, len(model.gate_1.mlp[-1].bias))
    changed = model(batch.inputs).detach()
    assert float((changed - gated).abs().mean()) > 0.1 * float(gated.std())

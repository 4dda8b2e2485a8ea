"""TabTransformer and SAINT against forms that compute one token after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.config.networks import SAINTConfig, TabTransformerConfig
from fielddep.encoding.rows import Layout
from fielddep.errors import ConfigError
from fielddep.nn.baselines.saint import SAINT
from fielddep.nn.baselines.tabtransformer import TabTransformer
from tests.conftest import double, random_table
from tests.helpers import raises
from tests.oracle.attention import layer, layer_norm, weights
from tests.oracle.slow_forms import array, check_rows, looked_up, run_layers, shaken

SIZES = {"d_embed": 8, "n_heads": 2, "hidden": (5,), "embedding_init_scale": 0.5}
LAYOUTS = [
    Layout(names=("user", "item", "price", "hour"), n_ids=(6, 9, 2, 5), numerical=(2,)),
    Layout(names=("user", "item"), n_ids=(6, 9)),
    Layout(names=("price", "size"), n_ids=(2, 2), numerical=(0, 1)),
]


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS, ids=["mixed", "categorical", "numerical"])
@pytest.mark.parametrize("column_share", [0.0, 0.25])
def test_tabtransformer(layout, n_outputs, column_share):
    torch.manual_seed(0)
    config = TabTransformerConfig(**SIZES, n_layers=2, column_share=column_share)
    model = shaken(TabTransformer(layout, n_outputs, config))
    assert all(weight.numel() for weight in model.parameters())

    def expected(batch, row):
        e = looked_up(model.embedding, layout, batch, row)
        categorical = [f for f in range(len(e)) if f not in layout.numerical]
        columns = [[]] * len(e) if model.columns_SK is None else array(model.columns_SK)
        tokens = [np.concatenate([columns[s], e[f]]) for s, f in enumerate(categorical)]
        for block in model.layers:
            tokens = layer(tokens, [tokens] * len(tokens), block, 2, 4)
        inputs = np.concatenate([*tokens, *(e[f] for f in layout.numerical)])
        return array(model.bias) + run_layers(model.mlp, inputs)

    check_rows(model, expected)


def tokens_of(model: SAINT, batch, row: int) -> list[np.ndarray]:
    e = looked_up(model.embedding, model.layout, batch, row)
    return [token + column for token, column in zip([0.0, *e], array(model.column_SD), strict=True)]


def head(model: SAINT, token: np.ndarray) -> np.ndarray:
    return array(model.bias) + run_layers(model.mlp, layer_norm(token, weights(model), "norm"))


def between_fields(model: SAINT, block: int, rows: list) -> list:
    return [layer(tokens, [tokens] * len(tokens), model.between_fields[block], 2, 4) for tokens in rows]


def between_rows(model: SAINT, block: int, rows: list, seen: list[list]) -> list:
    flat = layer(
        [np.concatenate(row) for row in rows],
        [[np.concatenate(row) for row in others] for others in seen],
        model.between_rows[block],
        2,
        3,
    )
    return [list(row.reshape(-1, 8)) for row in flat]


def saint(layout, n_outputs: int = 1, **settings) -> SAINT:
    torch.manual_seed(0)
    config = SAINTConfig(**{**SIZES, "d_row_head": 3, "n_reference": 3, "n_layers": 2, **settings})
    model = SAINT(layout, n_outputs, config)
    model.start_from(random_table(layout, 20, seed=5).batch(slice(None)).inputs)
    return shaken(model)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_saint_between_fields(layout, n_outputs):
    model = saint(layout, n_outputs, attention="fields")

    def expected(batch, row):
        rows = [tokens_of(model, batch, row)]
        for block in range(2):
            rows = between_fields(model, block, rows)
        return head(model, rows[0][0])

    check_rows(model, expected)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_saint_predicts_from_its_reference_rows(layout, n_outputs):
    model = saint(layout, n_outputs)
    reference = random_table(layout, 20, seed=5).batch(slice(0, 3))

    def expected(batch, row):
        rows = [tokens_of(model, batch, row)]
        others = [tokens_of(model, reference, r) for r in range(3)]
        for block in range(2):
            rows, others = between_fields(model, block, rows), between_fields(model, block, others)
            rows, others = (
                between_rows(model, block, rows, [[*others, *rows]]),
                between_rows(model, block, others, [others] * 3),
            )
        return head(model, rows[0][0])

    check_rows(model, expected)


def test_saint_trains_with_attention_inside_groups(layout):
    """Eight rows and groups of at least three: the groups are rows 0-3 and 4-7."""
    model = saint(layout, dropout=0.0, row_dropout=0.0).train()
    batch = random_table(layout, 8).batch(slice(None))
    found = model(double(batch.inputs)).detach().numpy()
    for group in (range(4), range(4, 8)):
        rows = [tokens_of(model, batch, row) for row in group]
        for block in range(2):
            rows = between_fields(model, block, rows)
            rows = between_rows(model, block, rows, [rows] * 4)
        for row, tokens in zip(group, rows, strict=True):
            np.testing.assert_allclose(found[row], head(model, tokens[0]), rtol=1e-9, atol=1e-10)


def test_saint_reference_rows_start_missing_and_repeat_where_rows_are_few(layout):
    model = SAINT(layout, 1, SAINTConfig(**SIZES, n_reference=5))
    assert model.reference_ids_RF.tolist() == [list(layout.offsets)] * 5
    assert model.reference_numbers_RN.tolist() == [[1.0]] * 5
    rows = random_table(layout, 2).batch(slice(None))
    model.start_from(rows.inputs)
    assert torch.equal(model.reference_ids_RF, rows.inputs.ids_BF[[0, 1, 0, 1, 0]])
    assert torch.equal(model.reference_numbers_RN, rows.inputs.numbers_BN[[0, 1, 0, 1, 0]])
    assert {"reference_ids_RF", "reference_numbers_RN"} < set(model.state_dict())


@pytest.mark.parametrize(("cls", "config"), [(TabTransformer, TabTransformerConfig), (SAINT, SAINTConfig)])
def test_heads_must_divide_a_token(layout, cls, config):
    with raises(ConfigError, "model.n_heads", 3, "model.d_embed", 8):
        cls(layout, 1, config(d_embed=8, n_heads=3))

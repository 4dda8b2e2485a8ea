"""Rows with a field changed, and what predictions lose, against encoding and predicting changed tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.vocabulary import MISSING_ID, RARE_ID
from fielddep.errors import UserError
from fielddep.explain.curves import model_logits
from fielddep.explain.hiding import (
    REFINEMENT,
    hide_field,
    hide_fields,
    permute_field,
    refines,
    unrefined,
    without_refinement,
)
from fielddep.nn import build_model
from tests.conftest import quick_config
from tests.explain.trained import MIXED_FIELDS, bundle_of, mixed, mixed_frame, mixed_rows, planted

FRAME = mixed_frame(120, seed=7)
N_SLOW = 25
"""Rows that are predicted one at a time."""
MODELS = [("good", "mdl"), ("kind", "mdl"), ("cost", "mdl"), ("good", "fm"), ("kind", "deepfm"), ("cost", "fm")]


def followed_predictions(bundle: Bundle, frame: pl.DataFrame) -> np.ndarray:
    """Prediction of every row one at a time: probability of the followed class, or value."""
    predictor = Predictor(bundle)
    found = []
    for row in range(N_SLOW):
        complete, changed = predictor.predict(FRAME[row : row + 1]), predictor.predict(frame[row : row + 1])
        if predictor.target.task == "regression":
            column = "prediction"
        else:
            label = complete["prediction"].item() if predictor.target.task == "multiclass" else 1
            column = f"probability_{label}"
        found.append(changed[column].item())
    return np.array(found)


@pytest.mark.parametrize(("target", "model"), MODELS)
def test_effects_equal_predictions_of_rows_with_an_empty_cell(target, model):
    bundle = mixed(target, model)
    effects = hide_fields(bundle, mixed_rows(bundle))
    assert effects.names == MIXED_FIELDS
    assert effects.without_RF.shape == (120, 5)
    np.testing.assert_allclose(effects.prediction_R[:N_SLOW], followed_predictions(bundle, FRAME), rtol=1e-5, atol=1e-6)
    for f, name in enumerate(MIXED_FIELDS):
        without = followed_predictions(bundle, FRAME.with_columns(pl.lit(None, dtype=FRAME.schema[name]).alias(name)))
        np.testing.assert_allclose(effects.without_RF[:N_SLOW, f], without, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            effects.effect_RF[:, f], effects.prediction_R - effects.without_RF[:, f], rtol=1e-12, atol=0
        )


@pytest.mark.parametrize(("target", "model"), [m for m in MODELS if m[0] != "cost"])
def test_log_odds_belong_to_the_probabilities(target, model):
    effects = hide_fields(mixed(target, model), mixed_rows(mixed(target, model)))
    assert effects.logit_R is not None and effects.logit_effect_RF is not None
    odds = np.log(effects.prediction_R / (1 - effects.prediction_R))
    np.testing.assert_allclose(effects.logit_R, odds, rtol=1e-8, atol=1e-8)
    without = np.log(effects.without_RF / (1 - effects.without_RF))
    np.testing.assert_allclose(effects.logit_effect_RF, odds[:, None] - without, rtol=1e-7, atol=1e-7)


def test_the_followed_class():
    assert set(hide_fields(mixed(), mixed_rows(mixed())).classes) == {1}
    many = mixed("kind")
    classes = hide_fields(many, mixed_rows(many)).classes
    assert list(classes) == Predictor(many).predict(FRAME)["prediction"].to_list()
    values = hide_fields(mixed("cost"), mixed_rows(mixed("cost")))
    assert values.classes == () and values.logit_R is None and values.logit_effect_RF is None


def test_frame_of_effects():
    effects = hide_fields(mixed(), mixed_rows(mixed()))
    frame = effects.to_frame()
    assert frame.columns == ["row", "hidden", "value", "class", "prediction", "without", "effect", "logit_effect"]
    assert len(frame) == 120 * 5
    line = frame.row(3 * 5 + 1, named=True)
    assert (line["row"], line["hidden"], line["value"], line["class"]) == (3, "shape", FRAME["shape"][3], "1")
    assert line["effect"] == effects.effect_RF[3, 1]
    assert line["without"] == effects.without_RF[3, 1]
    number = hide_fields(mixed("cost"), mixed_rows(mixed("cost"))).to_frame()
    assert number.columns == ["row", "hidden", "value", "prediction", "without", "effect"]


@pytest.mark.parametrize("target", ["good", "kind", "cost"])
def test_without_refinement_is_the_model_with_no_steps_and_the_same_weights(target):
    bundle = mixed(target)
    config = replace(bundle.config.model, n_inner_steps=0)
    still = build_model(bundle.encoder.layout, bundle.model.n_outputs, config)
    still.load_state_dict(bundle.model.state_dict())
    rows = mixed_rows(bundle)
    expected = model_logits(replace(bundle, model=still.eval()), rows)
    before = model_logits(bundle, rows)
    assert torch.equal(model_logits(unrefined(bundle), rows), expected)
    effects = without_refinement(bundle, rows)
    assert effects.names == (REFINEMENT,)
    assert np.abs(effects.effect_RF).max() > 1e-3
    assert effects.to_frame()["value"].null_count() == 120
    assert torch.equal(model_logits(bundle, rows), before)
    assert bundle.model.refinement.n_inner_steps == 4


def test_switching_refinement_off_copies_no_weights():
    bundle = mixed()
    off, on = dict(unrefined(bundle).model.named_parameters()), dict(bundle.model.named_parameters())
    assert off.keys() == on.keys()
    assert all(off[name] is on[name] for name in on)


@pytest.mark.parametrize("dependencies", ["global", "none"])
def test_a_model_that_does_not_refine(dependencies):
    bundle = bundle_of(
        mixed_frame(),
        quick_config(
            model__dependencies=dependencies,
            train__max_epochs=1,
            data__fields=["colour", "shape"],
            data__crosses="none",
        ),
    )
    assert not refines(bundle)
    with pytest.raises(UserError, match=r"model\.dependencies = 'refined'"):
        without_refinement(bundle, mixed_rows(bundle))
    assert hide_fields(bundle, mixed_rows(bundle)).names == ("colour", "shape")


def test_other_models_have_no_refinement_but_fields_to_hide():
    assert refines(mixed()) and not refines(mixed(model="fm"))
    with pytest.raises(UserError, match=r"mdl.*\bfm\b"):
        without_refinement(mixed(model="fm"), mixed_rows(mixed(model="fm")))


def test_no_rows():
    empty = hide_fields(mixed(), mixed().encoder.encode(FRAME.clear())[0])
    assert len(empty) == 0
    assert empty.without_RF.shape == (0, 5)
    assert empty.to_frame().columns == hide_fields(mixed(), mixed_rows(mixed())).to_frame().columns


def test_planted_fields_move_predictions_most():
    table, bundle, rows = planted()
    effects = hide_fields(bundle, rows)
    size = np.abs(effects.effect_RF).mean(axis=0)
    strongest = {effects.names[f] for f in np.argsort(-size)[:2]}
    assert strongest == set(table.planted[0])
    assert np.sort(size)[-2] > 2 * np.sort(size)[-3]


# --- changed rows equal rows encoded again from changed raw values, crosses included --------------------------


def assert_same(found: EncodedRows, expected: EncodedRows) -> None:
    np.testing.assert_array_equal(found.ids_RF, expected.ids_RF)
    np.testing.assert_array_equal(found.numbers_RN, expected.numbers_RN)
    assert np.array_equal(found.target_R, expected.target_R)


@pytest.mark.parametrize("field", MIXED_FIELDS)
def test_a_hidden_field_is_an_empty_column(field):
    encoder = mixed().encoder
    rows = mixed_rows(mixed())
    before = rows.ids_RF.copy(), rows.numbers_RN.copy()
    empty = FRAME.with_columns(pl.lit(None, dtype=FRAME.schema[field]).alias(field))
    hidden = hide_field(encoder, rows, MIXED_FIELDS.index(field))
    assert_same(hidden, encoder.encode(empty, with_target=True)[0])
    assert np.array_equal(rows.ids_RF, before[0]) and np.array_equal(rows.numbers_RN, before[1])


def test_a_hidden_field_takes_an_id_that_was_trained():
    rows = mixed_rows(mixed())
    ids = {name: hide_field(mixed().encoder, rows, f).ids_RF[:, f] for f, name in enumerate(MIXED_FIELDS)}
    assert (ids["colour"] == MISSING_ID).all()  # training held missing colours
    assert (ids["shape"] == RARE_ID).all()
    assert (ids["price"] == RARE_ID).all()
    assert (ids["height"] == MISSING_ID).all()
    assert (ids["size"] == 1).all()  # a number, and that is the mean:
    assert (hide_field(mixed().encoder, rows, MIXED_FIELDS.index("size")).numbers_RN[:, 0] == 0).all()


def test_crosses_of_a_hidden_field_follow_and_others_stay():
    rows = mixed_rows(mixed())
    n_fields = len(MIXED_FIELDS)
    hidden = hide_field(mixed().encoder, rows, 0).ids_RF
    assert not np.array_equal(hidden[:, n_fields], rows.ids_RF[:, n_fields])
    assert np.array_equal(hidden[:, n_fields + 1], rows.ids_RF[:, n_fields + 1])


@pytest.mark.parametrize("field", MIXED_FIELDS)
def test_permuted_ids_are_those_of_permuted_values(field):
    encoder = mixed().encoder
    order = np.random.default_rng(3).permutation(len(FRAME))
    shuffled = FRAME.with_columns(FRAME[field].gather(order))
    found = permute_field(encoder, mixed_rows(mixed()), MIXED_FIELDS.index(field), order)
    assert_same(found, encoder.encode(shuffled, with_target=True)[0])


def test_changing_no_rows():
    none, _ = mixed().encoder.encode(FRAME.clear(), with_target=True)
    for position in range(len(MIXED_FIELDS)):
        assert len(hide_field(mixed().encoder, none, position)) == 0
        assert len(permute_field(mixed().encoder, none, position, np.empty(0, dtype=np.int64))) == 0

"""What an ablation trains: which settings are varied, and that equal settings are one training."""

from __future__ import annotations

from typing import Any

import pytest

from fielddep.config.settings import Config
from fielddep.errors import UserError
from fielddep.experiments.ablation.plan import (
    DEFAULT_SEEDS,
    QUESTIONS,
    Training,
    ablated_contenders,
    curve_sweeps,
    parse_questions,
    steps_training,
    tuned,
    variant_sweep,
    zeta_sweep,
)
from tests.experiments.ablation.ablations import plan_of


def base_of(**settings: Any) -> Training:
    return tuned(Config().replace({name.replace("__", "."): value for name, value in settings.items()}))


def test_all_stands_for_everything_in_order() -> None:
    assert parse_questions("all") == QUESTIONS == ("variants", "sparsity", "steps", "depth")
    assert parse_questions("parts,all") == (*QUESTIONS, "parts")
    assert parse_questions(" depth, variants,depth") == ("variants", "depth")


@pytest.mark.parametrize(("text", "said"), [("varients", "'varients'.*'variants'"), (" ,", "variants, sparsity")])
def test_unknown_questions_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_questions(text)


@pytest.mark.parametrize(("settings", "said"), [({"seeds": 0}, "seed.*0"), ({"train_rows": 0}, "row.*0")])
def test_impossible_plans_are_refused(settings: dict[str, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan_of(**settings)


def test_seeds_that_are_given_hold_for_everything() -> None:
    assert {what: plan_of(seeds=None).n_seeds(what) for what in DEFAULT_SEEDS} == DEFAULT_SEEDS
    assert {plan_of(seeds=7).n_seeds(what) for what in QUESTIONS} == {7}
    assert DEFAULT_SEEDS["variants"] == 5


def test_variants_are_tuned_only_when_they_are_asked_for() -> None:
    assert [c.name for c in ablated_contenders(("depth",))] == ["mdl"]
    assert [c.name for c in ablated_contenders(QUESTIONS)] == ["mdl-wo-dep", "mdl-global-dep", "mdl"]


def test_lambda_is_varied_by_factors_of_its_tuned_value() -> None:
    base = base_of(model__sparsity=23.456)
    (sweep,) = curve_sweeps("sparsity", base, plan_of(sparsity_factors=(0.1, 1.0, 10.0)))
    assert [point.value for point in sweep.points] == [2.35, 23.456, 235.0]
    assert [point.training.name for point in sweep.points] == ["sparsity-2.35", "mdl", "sparsity-235"]
    assert [point.training.config.model.sparsity for point in sweep.points] == [2.35, 23.456, 235.0]
    assert sweep.points[1].training is base
    assert sweep.control == 23.456


def test_the_grid_of_lambda_is_even_in_its_logarithm() -> None:
    (sweep,) = curve_sweeps("sparsity", base_of(model__sparsity=10.0), plan_of())
    assert [point.value for point in sweep.points] == [0.316, 1.0, 3.16, 10.0, 31.6, 100.0, 316.0]


def test_one_training_is_evaluated_with_all_steps() -> None:
    base = base_of(model__n_inner_steps=6)
    evaluated, trained = curve_sweeps("steps", base, plan_of())
    assert [(point.value, point.n_steps) for point in evaluated.points] == [(t, t) for t in range(11)]
    (training,) = evaluated.trainings
    assert (training.name, training.config.model.n_inner_steps) == ("trained_steps-4", 4)
    assert training == steps_training(base, plan_of())
    assert [point.value for point in trained.points] == [0, 1, 2, 4, 6, 8]
    assert [point.training.config.model.n_inner_steps for point in trained.points] == [0, 1, 2, 4, 6, 8]
    assert trained.points[3].training == training
    assert trained.points[4].training is base


@pytest.mark.parametrize(
    ("hidden", "widths", "names"),
    [
        ((50, 50), [(50,), (50, 50), (50, 50, 50)], ["layers-2", "mdl", "layers-4"]),
        ((), [(), (100,), (100, 100), (100, 100, 100)], ["mdl", "layers-2", "layers-3", "layers-4"]),
        ((60, 30), [(60,), (60, 60), (60, 60, 60)], ["layers-2", "layers-3", "layers-4"]),
    ],
)
def test_layers_count_the_output_and_the_tuned_number_is_among_them(
    hidden: tuple[int, ...], widths: list[tuple[int, ...]], names: list[str]
) -> None:
    (sweep,) = curve_sweeps("depth", base_of(model__hidden=hidden), plan_of())
    assert [point.value for point in sweep.points] == [len(width) + 1 for width in widths]
    assert [point.training.config.model.hidden for point in sweep.points] == widths
    assert [point.training.name for point in sweep.points] == names


def test_every_zeta_is_a_training_of_its_own() -> None:
    config = Config().replace({"model.dependencies": "global", "model.global_penalty": 0.01})
    sweep = zeta_sweep(config, plan_of(zetas=(0.01, 1.0)))
    assert [point.training.name for point in sweep.points] == ["mdl-global-dep-zeta-0.01", "mdl-global-dep-zeta-1"]
    assert [point.training.config.model.global_penalty for point in sweep.points] == [0.01, 1.0]
    chosen = sweep.points[1].training
    base = base_of()
    variants = variant_sweep(base, Config().replace({"model.dependencies": "none"}), chosen)
    assert [point.value for point in variants.points] == ["mdl-wo-dep", "mdl-global-dep", "mdl"]
    assert variants.points[1].training is chosen
    assert variants.points[2].training is base


def test_settings_without_refinement_are_refused() -> None:
    with pytest.raises(UserError, match=r"model.dependencies.*'none'"):
        base_of(model__dependencies="none")

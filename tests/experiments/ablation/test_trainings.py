"""Figures of an ablation against direct computations: other numbers of steps, dependency loss, spread of mu."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import UserError
from fielddep.experiments.ablation.trainings import (
    AblationJob,
    dependency_figures,
    inner_steps,
    measured_rows,
    row_figures,
)
from fielddep.experiments.plan import changed_settings
from fielddep.nn.mdl import MDL
from fielddep.store.shards import StorePart
from fielddep.store.store import Store
from fielddep.training.fit import build_for, train
from fielddep.training.prepare import Prepared, prepare
from tests.conftest import quick_config
from tests.experiments.ablation.ablations import small_store

SPARSITY = 0.4
SETTINGS = {"model__sparsity": SPARSITY, "model__embedding_init_scale": 0.5, "train__embedding_l2": 0.0}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return small_store(tmp_path_factory.mktemp("ablation") / "store")


@pytest.fixture(scope="module")
def data(store: Store) -> Prepared:
    return prepare(store, quick_config(**SETTINGS))


@pytest.fixture(scope="module")
def trained(data: Prepared) -> Predictor:
    return Predictor(Bundle.of(train(data)))


def model_of(predictor: Predictor) -> MDL:
    assert isinstance(predictor.bundle.model, MDL)
    return predictor.bundle.model


def figures(predictor: Predictor, rows: StorePart, n_steps: int | None = None) -> dict[str, float]:
    return row_figures(model_of(predictor), predictor.target, rows, n_steps)


def with_settings(data: Prepared, predictor: Predictor, **settings: object) -> Predictor:
    """A model that is built with other settings and given the same weights."""
    config = data.config.replace({f"model.{name}": value for name, value in settings.items()})
    model = build_for(data.target, data.encoder.layout, config)
    weights = predictor.bundle.model.state_dict()
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return Predictor(Bundle(config=config, encoder=data.encoder, model=model))


def joined(blocks: Iterator[EncodedRows]) -> EncodedRows:
    return EncodedRows.concat(list(blocks))


def direct(model: MDL, rows: EncodedRows, n_steps: int, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Mean dependency loss and mean spread of mu/lambda, in float64, row by row."""
    batch = rows.batch(slice(None))
    e_BFD = model.embed(batch.inputs).detach().double()
    losses, spreads = [], []
    for e_FD in e_BFD:
        *_, last = model.refinement.path(e_FD.unsqueeze(0), n_steps)
        w_FF, mu_F = last.w_BFF[0].detach().numpy(), last.mu_BF[0].detach().numpy()
        residuals_DF = e_FD.numpy().T @ w_FF
        losses.append((mu_F * (residuals_DF**2).sum(axis=0)).sum() / (2 * SPARSITY))
        spreads.append(np.std(mu_F / SPARSITY))
    return float(np.average(losses, weights=weights)), float(np.average(spreads, weights=weights))


@pytest.mark.parametrize("n_steps", [0, 1, 4, 9])
def test_other_steps_are_those_of_a_model_built_with_them(n_steps: int, data: Prepared, trained: Predictor) -> None:
    built = with_settings(data, trained, n_inner_steps=n_steps)
    for part in ("train", "validation", "test"):
        assert figures(trained, data.parts[part], n_steps) == figures(built, data.parts[part])


def test_steps_make_a_difference_and_are_put_back(data: Prepared, trained: Predictor) -> None:
    rows, own = data.parts["test"], figures(trained, data.parts["test"])
    assert figures(trained, rows, 4) == own
    other = figures(trained, rows, 9)
    assert all(other[name] != own[name] for name in ("logloss", "dependency_loss", "mu_std"))
    assert figures(trained, rows) == own
    seen = []

    def fail() -> None:
        with inner_steps(model_of(trained), 3):
            seen.append(model_of(trained).refinement.n_inner_steps)
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fail()
    assert [*seen, model_of(trained).refinement.n_inner_steps] == [3, 4]


@pytest.mark.parametrize("n_steps", [0, 4, 7])
def test_figures_of_dependencies_are_those_of_a_direct_computation(
    n_steps: int, data: Prepared, trained: Predictor
) -> None:
    rows = joined(data.parts["test"].chunks())
    loss, spread = direct(model_of(trained), rows, n_steps)
    found = figures(trained, data.parts["test"], n_steps)
    assert found["dependency_loss"] == pytest.approx(loss, rel=1e-4)
    assert found["mu_std"] == pytest.approx(spread, rel=1e-4, abs=1e-7)
    assert loss > 1e-3
    assert (spread > 1e-3) == (n_steps > 0)


def test_metrics_are_those_of_the_predictor(store: Store, data: Prepared, trained: Predictor) -> None:
    found = figures(trained, data.parts["test"])
    expected = trained.evaluate(store, part="test")
    assert {name: found[name] for name in ("logloss", "auc")} == pytest.approx(
        {name: expected[name] for name in ("logloss", "auc")}
    )
    assert "loss" not in found


def test_rows_count_by_their_weights(data: Prepared, trained: Predictor) -> None:
    rows = joined(data.parts["test"].chunks())
    weights = np.arange(len(rows)) % 3
    weighted = rows.with_arrays(weight=weights.astype(np.float32))
    loss, spread = direct(model_of(trained), rows, 4, weights)
    assert dependency_figures(model_of(trained), StorePart.of(weighted)) == pytest.approx(
        {"dependency_loss": loss, "mu_std": spread}, rel=1e-4
    )


def test_blocks_of_a_store_give_what_all_rows_at_once_give(data: Prepared, trained: Predictor) -> None:
    part = data.parts["train"]
    assert len(list(part.chunks())) > 5
    by_block, at_once = (
        figures(trained, part),
        figures(trained, StorePart.of(joined(part.chunks()))),
    )
    for name in ("logloss", "dependency_loss", "mu_std"):
        assert by_block[name] == pytest.approx(at_once[name], rel=1e-6)
    assert by_block["auc"] == pytest.approx(at_once["auc"], abs=1e-3)  # rounding may part two rows that are tied


def test_a_model_without_dependencies_has_no_figures_of_them(data: Prepared) -> None:
    config = data.config.replace({"model.dependencies": "none"})
    model = build_for(data.target, data.encoder.layout, config)
    found = row_figures(model.eval(), data.target, data.parts["test"])
    assert set(found) == {"logloss", "auc", "calibration_error", "average_precision"}


def test_global_dependencies_are_measured_where_they_start(data: Prepared, trained: Predictor) -> None:
    found = dependency_figures(model_of(with_settings(data, trained, dependencies="global")), data.parts["test"])
    start = figures(trained, data.parts["test"], 0)
    assert found["dependency_loss"] == pytest.approx(start["dependency_loss"], rel=1e-6)
    assert found["mu_std"] == 0


def test_training_rows_beyond_a_number_are_sampled_always_the_same(data: Prepared) -> None:
    all_rows = measured_rows(data.parts, len(data.parts["train"]))
    assert all_rows == dict(data.parts)
    first, second = (measured_rows(data.parts, 50) for _ in range(2))
    assert len(first["train"]) == 50
    assert np.array_equal(first["train"].rows().ids_RF, second["train"].rows().ids_RF)
    assert first["test"] is data.parts["test"]


@pytest.fixture(scope="module")
def job(store: Store, tmp_path_factory: pytest.TempPathFactory) -> AblationJob:
    return AblationJob(
        dataset="shop",
        contender="mdl",
        seed=0,
        settings="tuned",
        config=changed_settings(quick_config(**SETTINGS)),
        store=str(store.folder),
        sha256=store.sha256,
        result=str(tmp_path_factory.mktemp("runs") / "mdl-0.json"),
        threads=1,
        inner_steps=(0, 4),
        train_rows=100,
    )


def test_a_run_measures_all_parts_with_all_steps(job: AblationJob, data: Prepared, trained: Predictor) -> None:
    result = job.run()
    assert set(result.metrics) == {"train", "validation", "test"}
    test = result.metrics["test"]
    names = {"logloss", "auc", "calibration_error", "average_precision", "dependency_loss", "mu_std"}
    assert set(test) == names | {f"{name}@{t}" for name in names for t in (0, 4)}
    assert {name: test[f"{name}@4"] for name in names} == {name: test[name] for name in names}
    assert test == pytest.approx(
        {**figures(trained, data.parts["test"])}
        | {f"{name}@{t}": v for t in (0, 4) for name, v in figures(trained, data.parts["test"], t).items()},
        rel=1e-5,
    )
    sample = measured_rows(data.parts, 100)["train"]
    assert result.metrics["train"]["logloss"] == pytest.approx(figures(trained, sample)["logloss"], rel=1e-5)
    assert (result.n_parameters or 0) > 0
    assert (result.train_seconds or 0) > 0
    job.save(result)
    assert job.saved() == result


def test_a_result_counts_for_what_was_measured_only(job: AblationJob) -> None:
    job.save(dataclasses.replace(job.failed("x"), error=None))
    assert job.saved() is not None
    assert dataclasses.replace(job, inner_steps=[0, 4]).saved() is not None
    for other in ({"inner_steps": (0,)}, {"train_rows": 99}, {"config": {"model": {"name": "mdl"}}}):
        assert dataclasses.replace(job, **other).saved() is None


def test_a_job_survives_the_way_to_its_process(job: AblationJob) -> None:
    assert pickle.loads(pickle.dumps(job)) == job


def test_a_store_that_was_replaced_is_refused(job: AblationJob) -> None:
    with pytest.raises(UserError, match=job.store):
        dataclasses.replace(job, sha256="other").run()
    assert Path(job.store).is_dir()

"""Searches: what is tried, within which budget, what is kept, that test rows are not used, and the settings found."""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fielddep.cli.options import build_store_config
from fielddep.config.factorization import LRConfig
from fielddep.errors import MissingExtraError, TrainingError, UserError
from fielddep.experiments import search as search_module
from fielddep.experiments import study as study_module
from fielddep.experiments import trials as trials_module
from fielddep.experiments.plan import Budget, Contender, Deadline, Plan, Workspace, find_contender, find_contenders
from fielddep.experiments.search import SearchResult, Tuning, is_searched, search, search_request
from fielddep.experiments.study import TrialRecord, open_study
from fielddep.observer import JobResult, Observer
from fielddep.store.store import Store
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import MAIN, Trained, fit
from fielddep.training.prepare import Prepared, prepare, search_rows
from tests.conftest import quick_config, small_frame
from tests.experiments.runs import run_here
from tests.stores import write_store

Train = Callable[..., Trained]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("rows") / "store", small_frame(), quick_config(data__crosses="none"))


def pretended(losses_of: Callable[[Prepared], list[float]]) -> Train:
    """A training that tells of these losses, and of a step before each."""

    def train(data: Prepared, *, observer: Observer) -> Trained:
        losses = losses_of(data)
        for step, loss in enumerate(losses, start=1):
            observer.on_step(step, 1, loss)
            observer.on_evaluation(evaluation(step, loss))
        best = evaluation(len(losses), min(losses), logloss=min(losses))
        return Trained(prepared=data, model=None, histories={MAIN: [best]}, seconds=1.0, rows_per_s=1.0)

    return train


def evaluation(step: int, loss: float, **metrics: float) -> Evaluation:
    validation = {"loss": loss, **metrics}
    return Evaluation(step=step, epoch=1.0, lr=0.1, train_loss=loss, validation=validation, best=True, seconds=1.0)


def by_rate(data: Prepared) -> list[float]:
    """The smaller the learning rate, the lower the loss."""
    assert data.config.train.lr is not None
    return [1.0, 0.5 + data.config.train.lr]


@pytest.fixture(autouse=True)
def no_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the defaults, LR is left to the sampler at once."""
    monkeypatch.setattr(LRConfig, "STARTS", ())


def run(store: Store, folder: Path, *, model: str = "lr", trials: int = 4, **others: object) -> SearchResult:
    budget = Budget(trials=trials, minutes=others.pop("minutes", None))
    return search(store, find_contender(model), folder, budget=budget, **others)


def told(records: tuple[TrialRecord, ...]) -> list[tuple[object, ...]]:
    """All of the records but the times."""
    return [(r.number, r.state, r.loss, r.settings, r.reason) for r in records]


def test_defaults_come_first_then_starts_then_proposals(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "train", pretended(by_rate))
    records = run(store, tmp_path, model="mdl", trials=5).records
    starts = find_contender("mdl").config().model.STARTS
    first = [json.loads(json.dumps(dict(start))) for start in ({}, *starts)]
    assert [record.settings for record in records[:3]] == first
    assert all({"train.lr", "model.inner_lr"} <= record.settings.keys() for record in records[3:])
    assert records[3].settings != records[4].settings


def test_the_best_is_kept_as_toml_that_fit_takes(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "train", pretended(by_rate))
    found = run(store, tmp_path, trials=6, given={"train.max_epochs": 1})
    assert found.best.loss == min(record.loss for record in found.records if record.loss is not None)
    config = build_store_config(store, tmp_path / "best.toml", None, {})
    assert config.train.lr == found.best.settings["train.lr"] == pytest.approx((found.best.loss or 0) - 0.5)
    assert (config.model.name, config.train.max_epochs, config.data) == ("lr", 1, store.config.data)
    assert fit(store, config).metrics["test"]["logloss"] > 0


def test_every_trial_stands_in_the_csv(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "train", pretended(by_rate))
    found = run(store, tmp_path, trials=3)
    rows = list(csv.DictReader((tmp_path / "trials.csv").open()))
    assert [(row["trial"], row["state"], float(row["loss"])) for row in rows] == [
        (str(record.number), record.state, record.loss) for record in found.records
    ]
    assert rows[0]["train.lr"] == ""
    assert float(rows[2]["train.lr"]) == found.records[2].settings["train.lr"]


def test_failing_trials_are_recorded_and_do_not_end_the_search(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def fails_twice(data: Prepared) -> list[float]:
        calls.append(1)
        if len(calls) == 1:
            raise TrainingError("the loss is nan at step 3. Lower train.lr")
        if len(calls) == 2:
            raise MemoryError("no room")
        return [0.5]

    monkeypatch.setattr(trials_module, "train", pretended(fails_twice))
    found = run(store, tmp_path, trials=4)
    assert [record.state for record in found.records] == ["failed", "failed", "complete", "complete"]
    assert found.records[0].reason == "the loss is nan at step 3. Lower train.lr"
    assert found.records[1].reason == "MemoryError: no room"
    assert found.records[0].loss is None


def test_without_a_successful_trial_the_reasons_are_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(data: Prepared) -> list[float]:
        raise TrainingError("diverged")

    monkeypatch.setattr(trials_module, "train", pretended(fails))
    with pytest.raises(UserError, match=r"2 trials .*diverged"):
        run(store, tmp_path, trials=2)
    assert not (tmp_path / "best.toml").exists()


@pytest.mark.parametrize("n_losses", [study_module.UNPRUNED_LOSSES, 10])
def test_hopeless_trials_are_pruned(
    n_losses: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def worse_later(data: Prepared) -> list[float]:
        calls.append(1)
        return [0.9] * 20 if len(calls) > 5 else [0.5] * n_losses

    monkeypatch.setattr(trials_module, "train", pretended(worse_later))
    records = run(store, tmp_path, trials=7).records
    assert [record.state for record in records] == ["complete"] * 5 + ["pruned"] * 2
    assert str(n_losses) in records[5].reason


def test_trials_that_learn_slowly_have_as_long_as_the_others_took(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def slow_later(data: Prepared) -> list[float]:
        calls.append(1)
        return [0.9] * 9 + [0.4] if len(calls) > 5 else [0.5] * 10

    monkeypatch.setattr(trials_module, "train", pretended(slow_later))
    found = run(store, tmp_path, trials=7)
    assert [record.state for record in found.records] == ["complete"] * 7
    assert found.best.number == 5


def test_trees_that_learn_slowly_are_not_pruned(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def slow_later(data: Prepared) -> list[float]:
        calls.append(1)
        return [0.9] * 8 + [0.4] if len(calls) > 5 else [0.5] * 8

    monkeypatch.setattr(trials_module, "train", pretended(slow_later))
    found = run(store, tmp_path, model="lightgbm", trials=7)
    assert [record.state for record in found.records] == ["complete"] * 7
    assert found.best.number == 5


@pytest.mark.parametrize(("n_before", "state"), [(0, "complete"), (1, "failed")])
def test_time_ends_a_trial_under_way(
    n_before: int, state: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only trial is let go on to its first loss, and counts with it; a later one ends at once."""
    monkeypatch.setattr(trials_module, "train", pretended(lambda data: [0.7, 0.2]))
    if n_before:
        run(store, tmp_path, trials=n_before)
    clock = iter(range(0, 10_000, 50))
    monkeypatch.setattr(trials_module.time, "perf_counter", lambda: float(next(clock)))
    found = run(store, tmp_path, trials=8, minutes=0.5)
    assert len(found.records) == n_before + 1
    last = found.records[-1]
    assert (last.state, "time" in last.reason) == (state, True)
    assert last.loss == (0.7 if state == "complete" else None)
    assert last.seconds >= 30


def test_a_spent_budget_is_not_spent_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "train", pretended(by_rate))
    first = run(store, tmp_path, trials=3)
    begun: list[str] = []

    class Begun(Observer):
        def on_job(self, title: str, result: JobResult | None) -> None:
            begun.extend([title] if result is None else [])

    assert told(run(store, tmp_path, trials=3, observer=Begun()).records) == told(first.records)
    assert begun == []
    assert len(run(store, tmp_path, trials=5, observer=Begun()).records) == 5
    assert begun == ["trial 3", "trial 4"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_search_goes_on_as_if_nothing_had_happened(
    error: type[BaseException], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SystemExit leaves the trial as a kill leaves it: under way."""
    monkeypatch.setattr(trials_module, "train", pretended(by_rate))
    whole = run(store, tmp_path / "whole", trials=8)
    calls: list[int] = []

    def interrupted(data: Prepared) -> list[float]:
        calls.append(1)
        if len(calls) in (1, 6):
            raise error
        return by_rate(data)

    monkeypatch.setattr(trials_module, "train", pretended(interrupted))
    for _ in range(2):
        with pytest.raises(error):
            run(store, tmp_path / "cut", trials=8)
    assert told(run(store, tmp_path / "cut", trials=8).records) == told(whole.records)


def test_a_trial_that_kills_the_process_is_given_up(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kills_at_first(data: Prepared) -> list[float]:
        if data.config.train.lr == LRConfig.LEARNING_RATE:  # that of the defaults
            raise SystemExit
        return by_rate(data)

    monkeypatch.setattr(trials_module, "train", pretended(kills_at_first))
    for _ in range(study_module.MAX_KILLS):
        with pytest.raises(SystemExit):
            run(store, tmp_path, trials=2)
    records = run(store, tmp_path, trials=2).records
    assert [record.state for record in records] == ["failed", "complete"]
    assert "killed" in records[0].reason


def test_test_rows_are_not_given_to_a_search(store: Store) -> None:
    data = search_rows(store, find_contender("lr").config())
    assert set(data.parts) == {"train", "validation"}


def test_targets_of_test_rows_change_nothing(tmp_path: Path) -> None:
    """The same split, with every target of a test row turned round."""
    frame, config = small_frame(), quick_config(data__crosses="none")
    parts = prepare(frame, config).store.parts(0, len(frame))
    is_test = pl.Series(parts == 2)
    turned = frame.with_columns(good=pl.when(is_test).then(1 - pl.col("good")).otherwise(pl.col("good")))
    found = []
    for name, table in {"as it is": frame, "turned": turned}.items():
        store = write_store(tmp_path / name / "store", table, config, parts=parts)
        found.append(told(run(store, tmp_path / name / "search", trials=2, given={"train.max_epochs": 1}).records))
    assert found[0] == found[1]


def test_a_sample_holds_so_many_training_rows_and_all_validation_rows(store: Store) -> None:
    whole = search_rows(store, find_contender("lr").config())
    data = search_rows(store, find_contender("lr").config(), n_rows=100, seed=1)
    assert (len(data.parts["train"]), len(data.parts["validation"])) == (100, len(whole.parts["validation"]))
    assert data.config == whole.config  # open settings are decided from all rows
    rows = [row for block in whole.parts["train"].chunks() for row in block.ids_RF.tolist()]
    (sample,) = data.parts["train"].chunks()
    kept = iter(rows)
    assert all(row in kept for row in sample.ids_RF.tolist())  # in the order of the source
    assert len(search_rows(store, find_contender("lr").config(), n_rows=10**6).parts["train"]) == len(rows)


def test_another_search_in_the_folder_is_refused(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "train", pretended(by_rate))
    run(store, tmp_path / "a", trials=1)
    with pytest.raises(UserError, match=r"seed.*0.*1"):
        run(store, tmp_path / "a", trials=1, seed=1)
    with pytest.raises(UserError, match=r"model.*'lr'.*'fm'"):
        run(store, tmp_path / "a", trials=1, model="fm")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match=str(tmp_path / "b")):
        run(store, tmp_path / "b", trials=1)


def test_a_finished_search_is_known_by_request_and_budget(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "train", pretended(by_rate))
    run(store, tmp_path, trials=2, given={"train.max_epochs": 2})
    request = search_request(store, find_contender("lr"), {"train.max_epochs": 2}, seed=0, n_rows=None)
    assert is_searched(tmp_path, request, Budget(trials=2))
    assert not is_searched(tmp_path, request, Budget(trials=3))
    assert not is_searched(tmp_path, {**request, "rows": 5}, Budget(trials=2))
    assert not is_searched(tmp_path / "nowhere", request, Budget(trials=2))
    assert search_module.SUMMARY == "search.json"


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"fielddep\[search\]"):
        study_module.import_optuna()


def tuning_of(store: Store, folder: Path, **settings: Any) -> Tuning:
    plan = Plan(contenders=find_contenders("lr,fm"), **settings)
    return Tuning(work=Workspace(dataset="shop", store=store, folder=folder, plan=plan))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"search_rows": 50}, "fm.*rows.*None.*50"),
        ({"rows_by_model": {"fm": 50}}, "fm.*rows.*None.*50"),
        ({"given": {"train.max_epochs": 3}}, "train.max_epochs.*3"),
        ({"search_seed": 1}, "seed.*0.*1"),
    ],
)
def test_other_options_are_refused_before_any_search_begins(
    settings: dict[str, Any], said: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("a search was begun")

    monkeypatch.setattr(search_module, "run_tasks", begun)
    fm = search_request(store, find_contender("fm"), {}, seed=0, n_rows=None)
    open_study(tmp_path / "search" / "fm", fm)
    with pytest.raises(UserError, match=said):
        tuning_of(store, tmp_path, **settings).run()
    assert [path.name for path in tmp_path.iterdir()] == ["search"]


def test_a_search_has_the_settings_rows_and_threads_of_the_plan(store: Store, tmp_path: Path) -> None:
    given = {"train.optimizer": None, "train.max_epochs": 3}
    tuning = tuning_of(store, tmp_path, given=given, search_rows=80, rows_by_model={"fm": 50}, threads=3, search_seed=7)
    lr, fm = (pickle.loads(pickle.dumps(tuning._task(name).call)) for name in ("lr", "fm"))
    assert (lr.args[2], fm.args[2]) == ("lr", "fm")
    assert lr.keywords["given"] == {**given, "train.threads": 3}
    assert lr.keywords["n_rows"] == 80
    options = {name: value for name, value in fm.keywords.items() if name != "given"}
    assert options == {"n_rows": 50, "seed": 7, "budget": tuning.work.plan.budget, "deadline": Deadline()}


def test_a_search_that_failed_is_known_by_its_reason_and_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(store: Store, contender: Contender, folder: str, **_: Any) -> None:
        raise RuntimeError(f"no memory for {contender.name}")

    monkeypatch.setattr(search_module, "search", fails)
    monkeypatch.setattr(search_module, "run_tasks", run_here)
    chosen = tuning_of(store, tmp_path).run()
    assert [chosen[name].failure for name in ("lr", "fm")] == ["no memory for lr", "no memory for fm"]
    monkeypatch.setattr(search_module, "search", write_best)
    kept = tuning_of(store, tmp_path, keep_failed=True).run()
    assert kept["fm"].failure == "no memory for fm"
    found = tuning_of(store, tmp_path).run()
    assert (found["fm"].failure, found["fm"].config.train.lr) == (None, 0.5)
    assert not list((tmp_path / "search").glob("*.failed.json"))


def write_best(store: Store, contender: Contender, folder: str, **_: Any) -> None:
    Path(folder).mkdir(parents=True)
    (Path(folder) / "best.toml").write_text(f'[model]\nname = "{contender.name}"\n[train]\nlr = 0.5\n')

"""Notes below a comparison: what they claim is what the runs tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fielddep.experiments.comparison_files import machine_note, settings_note, trials_note
from fielddep.experiments.contenders import find_contenders
from fielddep.experiments.plan import Plan
from fielddep.experiments.results import RunResult
from fielddep.experiments.trial_loop import Budget
from fielddep.experiments.trial_records import TrialRecord, trials_csv
from tests.unit.experiments.runs import runs


def of(model: str, **means: Any) -> list[RunResult]:
    return runs(model, [0.5, 0.6], **means)


@pytest.mark.parametrize(
    ("results", "note"),
    [
        (of("fm", threads=1, device="cpu"), "Every run had 1 thread."),
        (of("fm", threads=2, device="cuda"), "Every run had 2 threads and the device cuda."),
        (of("fm"), "Every run had a number of threads that is not known."),
        (
            [*of("fm", threads=1), *of("lr", threads=2), *of("mdl", threads=1)],
            "Runs had 1 thread (fm, mdl); 2 threads (lr): times can be compared only where this is equal.",
        ),
        (
            [*of("fm"), *of("lr", threads=2)],
            "Runs had a number of threads that is not known (fm); 2 threads (lr): times can be compared only where "
            "this is equal.",
        ),
        ([*of("fm", threads=1), *runs("lr", ["no memory"], threads=2)], "Every run had 1 thread."),
        (runs("lr", ["no memory"]), ""),
    ],
)
def test_threads_are_those_that_the_runs_had(results: list[RunResult], note: str) -> None:
    assert machine_note(results) == note


def test_trials_are_those_that_each_search_had(tmp_path: Path) -> None:
    for model, states in {"mdl": ["complete", "pruned", "complete"], "catboost": ["complete"]}.items():
        records = [
            TrialRecord(number=number, state=state, loss=0.5, seconds=1.0, settings={})
            for number, state in enumerate(states)
        ]
        (tmp_path / model).mkdir()
        (tmp_path / model / "trials.csv").write_text(trials_csv(records), "utf-8")
    contenders = find_contenders("catboost,mdl,mdl-wo-dep,fm")
    note = trials_note(tmp_path, Plan(contenders=contenders))
    assert note == "Trials: catboost 1, mdl 3 (1 pruned); the first has the defaults."
    assert trials_note(tmp_path, Plan(contenders=contenders, budget=None)) == ""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "mdl.toml").touch()
    told = trials_note(tmp_path, Plan(contenders=contenders, configs=tmp_path / "given"))
    assert told == "Trials: catboost 1; the first has the defaults."


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, "30 trials."),
        ({"search_rows": 5000}, "30 trials, on at most 5,000 training rows."),
        (
            {"slow_rows": {"fm": 1000}},
            "30 trials, on all training rows; fm, which is slow, on at most 1,000 of them.",
        ),
        (
            {"search_rows": 5000, "slow_rows": {"fm": 1000}},
            "30 trials, on at most 5,000 training rows; fm, which is slow, on at most 1,000 of them.",
        ),
    ],
)
def test_the_rows_that_searches_had_are_told(rows: dict[str, Any], said: str) -> None:
    note = settings_note(Plan(contenders=find_contenders("lr,fm"), **rows))
    assert note == f"The settings of all models were searched on validation rows, each with {said}"


@pytest.mark.parametrize(
    ("files", "budget", "said"),
    [
        ([], None, "All models have their defaults."),
        (["fm"], None, "The settings of fm are those of given/. Other models have their defaults."),
        (["mdl", "fm"], None, "The settings of fm, mdl-wo-dep are those of given/."),
        (
            ["mdl"],
            Budget(trials=9, minutes=5),
            "The settings of mdl-wo-dep are those of given/. The settings of other models were searched on validation "
            "rows, each with 9 trials or 5 minutes, whichever came first.",
        ),
    ],
)
def test_whose_settings_were_given_is_told(files: list[str], budget: Budget | None, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    for name in files:
        (folder / f"{name}.toml").touch()
    slow = {"mdl": 100} if files else {}
    contenders = find_contenders("fm,mdl-wo-dep")
    assert settings_note(Plan(contenders=contenders, configs=folder, budget=budget, slow_rows=slow)) == said

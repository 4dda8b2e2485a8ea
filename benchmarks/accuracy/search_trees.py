"""Tune LightGBM on one table of the accuracy benchmark, on the validation loss alone.

    python benchmarks/accuracy/search_trees.py flights --trials 25

Writes every trial to `search/lightgbm-<table>.csv` and the best to `configs/lightgbm-<table>.json`. The
budget is the number of trials or the minutes, whichever ends first (a trial under way is finished). The first
trial is close to LightGBM's defaults (lambda_l2 0.001 for 0; rare values keep their own bins), so that the chosen
setting is never worse than that trial on validation.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import optuna
import polars as pl

from tables import NAMES, load
from trees import CONFIGS, LOSS, MAX_ROUNDS, PATIENCE, TreeData, fit, metrics, prepare

SEARCH = Path(__file__).parent / "search"
SEED = 0
_DEFAULTS = {
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_child_samples": 20,
    "min_data_per_group": 100,
    "cat_smooth": 10.0,
    "cat_l2": 10.0,
    "max_cat_to_onehot": 4,
    "max_cat_threshold": 32,
    "feature_fraction": 1.0,
    "bagging_fraction": 1.0,
    "lambda_l2": 0.001,
}


def suggest(trial: optuna.Trial) -> dict[str, Any]:
    """One point of the search space; the number of trees is found by early stopping."""
    return {
        "num_leaves": trial.suggest_int("num_leaves", 7, 511, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.3, log=True),
        "min_child_samples": trial.suggest_int("min_child_samples", 1, 200, log=True),
        "min_data_per_group": trial.suggest_int("min_data_per_group", 1, 1000, log=True),
        "cat_smooth": trial.suggest_float("cat_smooth", 0.1, 500.0, log=True),
        "cat_l2": trial.suggest_float("cat_l2", 0.1, 500.0, log=True),
        "max_cat_to_onehot": trial.suggest_int("max_cat_to_onehot", 1, 64, log=True),
        "max_cat_threshold": trial.suggest_int("max_cat_threshold", 4, 2048, log=True),
        "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
        "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
        "lambda_l2": trial.suggest_float("lambda_l2", 0.001, 100.0, log=True),
    }


def objective(trial: optuna.Trial, data: TreeData, n_threads: int) -> float:
    """Validation loss of one trial; the other figures are kept with it."""
    start = time.perf_counter()
    booster = fit(data, suggest(trial), SEED, n_threads)
    trial.set_user_attr("n_trees", booster.best_iteration)
    trial.set_user_attr("train_seconds", round(time.perf_counter() - start, 1))
    figures = metrics(booster, data, "validation")
    for name, value in figures.items():
        trial.set_user_attr(f"validation_{name}", value)
    return figures[LOSS[data.task]]


def write(study: optuna.Study, name: str, budget: dict[str, float | None]) -> None:
    """All finished trials as CSV, the best as JSON."""
    for folder in (SEARCH, CONFIGS):
        folder.mkdir(exist_ok=True)
    finished = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    rows = [{"trial": t.number, **t.user_attrs, **t.params} for t in finished]
    pl.DataFrame(rows).write_csv(SEARCH / f"lightgbm-{name}.csv")
    best = {
        "table": name,
        "model": "lightgbm",
        "params": study.best_params,
        "trial": study.best_trial.number,
        "n_trials": len(finished),
        "validation_loss": study.best_value,
        "budget": budget,
        "max_rounds": MAX_ROUNDS,
        "patience": PATIENCE,
    }
    (CONFIGS / f"lightgbm-{name}.json").write_text(json.dumps(best, indent=2) + "\n", "utf-8")


def search(name: str, n_trials: int, minutes: float | None, n_threads: int) -> optuna.Study:
    """Run the study; results are written after every trial, so that a stopped search loses none."""
    data = prepare(load(name))
    budget = {"trials": n_trials, "minutes": minutes}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=SEED, multivariate=True))
    study.enqueue_trial(_DEFAULTS)
    study.optimize(
        lambda trial: objective(trial, data, n_threads),
        n_trials=n_trials,
        timeout=None if minutes is None else minutes * 60,
        callbacks=[lambda study, trial: write(study, name, budget)],
    )
    return study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", choices=NAMES)
    parser.add_argument("--trials", type=int, default=25)
    parser.add_argument("--minutes", type=float, default=None, help="stop starting trials after this time")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    study = search(given.table, given.trials, given.minutes, given.threads)
    print(json.dumps({"validation_loss": study.best_value, **study.best_params}, indent=2))


if __name__ == "__main__":
    main()

"""Choose MDL's settings for a table of the benchmark on its validation rows.

    python benchmarks/accuracy/search.py flights --trials 30 --minutes 20

Optuna's TPE sampler, seeded; the first trial is the library's default. Every trial stands in
`search/mdl-<table>.csv`, the best one in `configs/mdl-<table>.toml`, which `run.py` reads. Test rows are never
looked at.
"""

from __future__ import annotations

import argparse
import csv
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import optuna
import tomli_w
import torch

import tables
from fielddep.config import Config
from fielddep.data.splits import Split
from fielddep.errors import UserError
from fielddep.fitting import Prepared, prepare, train_model
from fielddep.training.defaults import decide
from fielddep.training.history import History

HERE = Path(__file__).parent
SEED = 0
STOPPING = {"train.eval_every": 4.0, "train.patience": 5, "train.max_epochs": 12, "train.plateau_factor": 1.0}
"""With averaged weights the validation loss falls and rises smoothly, so a plateau needs no drop of the rate."""
HEADS: dict[str, list[int]] = {"linear": [], "100": [100, 100], "200": [200, 200]}


@lru_cache(maxsize=8)
def prepared(name: str, crosses: str, home: Path | None = None) -> Prepared:
    """The table split and encoded, once for all trials."""
    table = load(name, home)
    config = Config().replace({"data.target": table.target, "data.task": table.task, "data.crosses": crosses})
    split = Split(train=table.rows("train"), validation=table.rows("validation"), test=table.rows("test"))
    return prepare(table.frame.select(*table.fields, table.target), config, split=split)


@lru_cache(maxsize=8)
def load(name: str, home: Path | None = None) -> tables.BenchTable:
    """The table, read once."""
    return tables.load(name, home)


def with_settings(base: Prepared, settings: dict[str, Any]) -> Prepared:
    """The same rows with other settings of model and training."""
    undecided = Config().replace({f"data.{k}": v for k, v in base.config.to_dict()["data"].items()})
    config = undecided.replace(settings)
    decided = decide(config, n_rows=len(base.split.train))
    return Prepared(config=decided, encoder=base.encoder, split=base.split, parts=base.parts)


def suggest(trial: optuna.Trial, n_fields: int) -> dict[str, Any]:
    """The search space; the same for every table, but for smaller embeddings where there are many pairs of fields.

    Left out to spend the trials elsewhere, after one or a few trials by hand on validation rows: Adam and embeddings
    as input (flights), batches of 512 (Frappe), Xavier-started pair matrices and decaying learning rates (Frappe,
    ML-Rating, flights). That is no proof that they could not do better.
    """
    batch_norm = trial.suggest_categorical("model.batch_norm", ["all", "none"])
    return {
        "data.crosses": trial.suggest_categorical("data.crosses", ["auto", "none"]),
        "train.lr": trial.suggest_float("train.lr", 0.02, 0.1, log=True),
        "train.average": trial.suggest_categorical("train.average", [0.7, 0.85]),
        "train.embedding_l2": trial.suggest_float("train.embedding_l2", 0.1, 5.0, log=True),
        "train.first_order_l2": trial.suggest_float("train.first_order_l2", 0.003, 0.3, log=True),
        "train.l2_rarity": trial.suggest_categorical("train.l2_rarity", [0.0, 0.5, 1.0]),
        "model.d_embed": trial.suggest_categorical("model.d_embed", [16, 24, 40, 64] if n_fields < 20 else [8, 16]),
        "model.hidden": HEADS[trial.suggest_categorical("model.hidden", list(HEADS))],
        "model.product_output": trial.suggest_categorical("model.product_output", [False, True]),
        "model.dropout": trial.suggest_categorical("model.dropout", [0.0, 0.2]),
        "model.batch_norm": batch_norm,
        "model.embedding_init": "xavier" if batch_norm == "all" else "normal",
        "model.interaction_init": "identity",
        "model.inner_lr": trial.suggest_float("model.inner_lr", 0.1, 2.0, log=True),
        "model.sparsity": trial.suggest_categorical("model.sparsity", [1.0, 10.0, 100.0]),
    }


FIRST_TRIALS = (
    {"model.batch_norm": "all", "train.embedding_l2": 1.0, "model.hidden": "100", "model.product_output": False},
    {"model.batch_norm": "none", "train.embedding_l2": 0.4, "model.hidden": "linear", "model.product_output": True},
)
"""Where the search starts, besides the library's defaults: what did best by hand on validation rows."""
FIRST_COMMON = {
    "data.crosses": "auto",
    "train.lr": 0.05,
    "train.average": 0.85,
    "train.first_order_l2": 0.02,
    "train.l2_rarity": 0.5,
    "model.dropout": 0.0,
    "model.inner_lr": 1.0,
    "model.sparsity": 10.0,
}


def train(base: Prepared, settings: dict[str, Any]) -> tuple[dict[str, float], float]:
    """Validation metrics at the best evaluation, and seconds."""
    start = time.perf_counter()
    history = History()
    train_model(with_settings(base, settings), history=history)
    assert history.best is not None
    return history.best.validation, time.perf_counter() - start


def search(name: str, *, trials: int, minutes: float, home: Path | None = None) -> None:
    rows: list[dict[str, Any]] = []
    best = float("inf")
    n_fields = len(load(name, home).fields)

    def objective(trial: optuna.Trial) -> float:
        nonlocal best
        settings = {} if trial.number == 0 else {**STOPPING, **suggest(trial, n_fields)}
        crosses = str(settings.pop("data.crosses", "auto"))
        try:
            metrics, seconds = train(prepared(name, crosses, home), settings)
        except UserError as error:  # a diverged trial is a bad one, not the end of the search
            raise optuna.TrialPruned(str(error)) from error
        settings = {"data.crosses": crosses, **settings}
        rows.append({"trial": trial.number, **metrics, "seconds": round(seconds, 1), **settings})
        write_trials(HERE / "search" / f"mdl-{name}.csv", rows)
        if metrics["loss"] < best:
            best = metrics["loss"]
            write_config(name, settings)
        print(f"{name} trial {trial.number}: loss {metrics['loss']:.5f} (best {best:.5f}) {seconds:.0f}s", flush=True)
        return metrics["loss"]

    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=8, multivariate=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial({})  # trial 0 is the default
    for first in FIRST_TRIALS:
        study.enqueue_trial({**FIRST_COMMON, **first, "model.d_embed": 40 if n_fields < 20 else 16})
    study.optimize(objective, n_trials=trials, timeout=60 * minutes)


def write_trials(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def write_config(name: str, settings: dict[str, Any]) -> None:
    """Settings that differ from the defaults, as TOML that `fielddep fit --config` takes."""
    sections: dict[str, dict[str, Any]] = {}
    table = load(name)
    config = {"data.target": table.target, "data.task": table.task, **settings}
    for path, value in config.items():
        section, key = path.split(".", 1)
        sections.setdefault(section, {})[key] = value
    folder = HERE / "configs"
    folder.mkdir(exist_ok=True)
    (folder / f"mdl-{name}.toml").write_text(tomli_w.dumps(sections))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=tables.NAMES)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    search(arguments.table, trials=arguments.trials, minutes=arguments.minutes)

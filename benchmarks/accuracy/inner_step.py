"""How much the choice of the inner step size matters, with fixed, scaled and damped steps.

    python benchmarks/accuracy/inner_step.py frappe ml-tag-part --seeds 3

Trains MDL with every `model.inner_lr` of `RATES` and every `model.inner_step` of `STEPS`, with the other settings of
`SETTINGS`, and writes the best validation loss of every run to `inner_step.csv`. Runs that are in the file are not
repeated. Test rows are never used.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
from pathlib import Path

import torch

import tables
from fielddep.artifacts.run import source_version
from fielddep.config.defaults import fill_defaults
from fielddep.config.settings import Config
from fielddep.errors import TrainingError
from fielddep.training.fit import train
from fielddep.training.prepare import Prepared

HERE = Path(__file__).parent
OUT = HERE / "inner_step.csv"
RATES = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
STEPS = ("fixed", "scaled", "damped")
SETTINGS: dict[str, dict[str, object]] = {
    "default": {},
    "batch-norm": {
        "model.batch_norm": "all",
        "model.embedding_init": "xavier",
        "model.product_output": False,
        "train.embedding_l2": 1.0,
    },
    "weak-ridge": {"train.embedding_l2": 0.02},
    "strong-ridge": {"train.embedding_l2": 2.0},
}
"""The library's defaults, the settings of the paper's code, and defaults with larger or smaller embeddings."""
COLUMNS = ("table", "settings", "inner_step", "inner_lr", "seed", "validation_loss", "commit")


def prepared(name: str) -> Prepared:
    """The table split and encoded, once for all runs."""
    return tables.load(name).encoded(Config())


def best_loss(base: Prepared, settings: dict[str, object]) -> float | None:
    """Lowest validation loss of a training; None if it diverged."""
    data = {f"data.{key}": value for key, value in base.config.to_dict()["data"].items()}
    config = fill_defaults(Config().replace({**data, **settings}), n_rows=len(base.parts["train"]))
    try:
        trained = train(dataclasses.replace(base, config=config))
    except TrainingError:
        return None
    return trained.validation["loss"]


def done() -> set[tuple[str, str, str, float, int]]:
    """Runs that are in the file."""
    if not OUT.exists():
        return set()
    with OUT.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {(r["table"], r["settings"], r["inner_step"], float(r["inner_lr"]), int(r["seed"])) for r in rows}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=tables.NAMES)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    commit = source_version()
    for name in arguments.tables:
        base = prepared(name)
        for run in itertools.product([name], arguments.settings, STEPS, RATES, range(arguments.seeds)):
            if run in done():
                continue
            _, settings, step, rate, seed = run
            own = {"model.inner_step": step, "model.inner_lr": rate, "train.seed": seed}
            loss = best_loss(base, {**SETTINGS[settings], **own})
            new = not OUT.exists()
            with OUT.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerows([COLUMNS] if new else [])
                writer.writerow([*run, "" if loss is None else f"{loss:.6f}", commit])
            print(*run, loss, flush=True)


if __name__ == "__main__":
    main()

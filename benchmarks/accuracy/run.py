"""Run the accuracy benchmark: every table, model and seed, with the settings that the searches chose.

    python benchmarks/accuracy/run.py                        all that is not in results.csv yet
    python benchmarks/accuracy/run.py flights --models mdl lightgbm

Rows are appended to `results.csv` as they are done, so an interrupted run goes on where it stopped. `summary.py` makes
the tables from it. Variants: *tuned* (settings of `configs/`, chosen on validation rows) and *default* (no setting at
all, which is what an estimator does). `mdl-wo-dep` is the tuned MDL without inner loop and dependency input.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import search
import tables
import trees
from fielddep.config import Config
from fielddep.data.splits import Split
from fielddep.fitting import measure, prepare, train_model

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
COLUMNS = ("dataset", "model", "variant", "seed", "split", "metric", "value", "train_seconds", "commit")
METRICS = {"binary": ("logloss", "auc"), "regression": ("mse",)}
N_SEEDS = 5
DEFAULTS_ON = ("flights", "diabetes130")


@dataclass(frozen=True)
class Job:
    """One training."""

    dataset: str
    model: str
    variant: str
    seed: int


def jobs(datasets: list[str], models: list[str], seeds: list[int]) -> Iterator[Job]:
    """Seed by seed, so that an interrupted run has whole tables of fewer seeds."""
    variants = {"mdl": ("tuned", "default"), "mdl-wo-dep": ("tuned",), "lightgbm": ("tuned",)}
    for seed in seeds:
        for dataset in datasets:
            for model in models:
                for variant in variants[model]:
                    if variant == "default" and dataset not in DEFAULTS_ON:
                        continue
                    if variant == "tuned" and not config_of(dataset, model).exists():
                        continue
                    yield Job(dataset, model, variant, seed)


def config_of(dataset: str, model: str) -> Path:
    """File of the settings that a search chose; absent where no search was run."""
    name = f"lightgbm-{dataset}.json" if model == "lightgbm" else f"mdl-{dataset}.toml"
    return HERE / "configs" / name


def run(job: Job) -> tuple[dict[str, dict[str, float]], float]:
    """Metrics of validation and test rows, and training seconds."""
    table = search.load(job.dataset)
    if job.model == "lightgbm":
        found = trees.run_lightgbm(table, trees.load_params(job.dataset), job.seed, torch.get_num_threads())
        names = METRICS[table.task]
        parts = {part: {m: found[f"{part}_{m}"] for m in names} for part in ("validation", "test")}
        return parts, found["train_seconds"]
    start = time.perf_counter()
    config = Config().replace({**settings_of(job, table), "train.seed": job.seed})
    split = Split(train=table.rows("train"), validation=table.rows("validation"), test=table.rows("test"))
    prepared = prepare(table.frame.select(*table.fields, table.target), config, split=split)
    model = train_model(prepared)
    seconds = time.perf_counter() - start
    return measure(prepared, model), seconds


def settings_of(job: Job, table: tables.BenchTable) -> dict[str, Any]:
    if job.variant == "default":
        return {"data.target": table.target, "data.task": table.task}
    config = Config.from_toml(config_of(job.dataset, job.model)).to_dict()
    settings = {f"{section}.{key}": value for section, values in config.items() for key, value in values.items()}
    if job.model == "mdl-wo-dep":
        settings["model.dependencies"] = "none"
    return settings


def done() -> set[Job]:
    """Trainings that are in the results already."""
    if not RESULTS.exists():
        return set()
    with RESULTS.open(newline="") as file:
        return {Job(r["dataset"], r["model"], r["variant"], int(r["seed"])) for r in csv.DictReader(file)}


def append(job: Job, parts: dict[str, dict[str, float]], seconds: float, commit: str, task: str) -> None:
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        for split in ("validation", "test"):
            for metric in METRICS[task]:
                value = f"{parts[split][metric]:.6f}"
                writer.writerow(
                    (job.dataset, job.model, job.variant, job.seed, split, metric, value, f"{seconds:.1f}", commit)
                )


def git_commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return done.stdout.strip()


def write_machine() -> None:
    """What the results were measured on."""
    facts = {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    (HERE / "machine.json").write_text(json.dumps(facts, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=list(tables.NAMES))
    parser.add_argument("--models", nargs="+", default=["mdl", "mdl-wo-dep", "lightgbm"])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(N_SEEDS)))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    write_machine()
    commit = git_commit()
    for job in jobs(arguments.datasets, arguments.models, arguments.seeds):
        if job in done():
            continue
        parts, seconds = run(job)
        append(job, parts, seconds, commit, search.load(job.dataset).task)
        shown = " ".join(f"{m} {parts['test'][m]:.4f}" for m in METRICS[search.load(job.dataset).task])
        print(f"{job.dataset} {job.model} {job.variant} seed {job.seed}: test {shown} ({seconds:.0f}s)", flush=True)


if __name__ == "__main__":
    main()

"""Are the defaults good on a thousand rows? On ten thousand? On all?

    python benchmarks/accuracy/defaults.py

Trains MDL without any settings on samples of the training rows of three tables, and LightGBM with its defaults and
early stopping on the same validation rows. Both are measured on all test rows. A tenth of each sample is held out for
validation. Results are appended to `defaults.csv` one by one.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import time
from pathlib import Path

import numpy as np
import torch

import tables
from fielddep.artifacts.run import source_version
from fielddep.experiments.plan import find_contender
from fielddep.training.fit import fit

RESULTS = Path(__file__).parent / "defaults.csv"
COLUMNS = ("dataset", "rows", "model", "seed", "metric", "value", "train_seconds", "commit")
TABLES = ("flights", "diabetes130", "ml-rating")
METRICS = {"binary": ("logloss", "auc"), "regression": ("mse",)}


def sample(table: tables.BenchTable, n_rows: int, seed: int) -> tables.BenchTable:
    """The table with `n_rows` training rows, a tenth of them for validation, and all test rows."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(table.rows("train"))[:n_rows]
    split = np.full(len(table.split), "unused", dtype=object)
    split[rows[: n_rows // 10]], split[rows[n_rows // 10 :]] = "validation", "train"
    split[table.rows("test")] = "test"
    return dataclasses.replace(table, split=split)


def run_mdl(table: tables.BenchTable, seed: int) -> dict[str, float]:
    prepared = table.encoded(find_contender("mdl").config({"train.seed": seed}))
    found = fit(prepared).metrics
    base = {f"base_{name}": value for name, value in found["test_base_rate"].items()}
    return {**found["test"], **base}


def run_lightgbm(table: tables.BenchTable, seed: int) -> dict[str, float]:
    prepared = table.encoded(find_contender("lightgbm").config({"train.seed": seed, "train.threads": 1}))
    return fit(prepared).metrics["test"]


def done() -> set[tuple[str, ...]]:
    if not RESULTS.exists():
        return set()
    with RESULTS.open(newline="") as file:
        return {tuple(row[c] for c in COLUMNS[:4]) for row in csv.DictReader(file)}


def append(key: tuple[str, ...], values: dict[str, float], seconds: float) -> None:
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        for metric, value in values.items():
            writer.writerow((*key, metric, f"{value:.6f}", f"{seconds:.1f}", source_version()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=list(TABLES))
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for dataset in arguments.datasets:
        table = tables.load(dataset)
        for n_rows in arguments.rows:
            for seed in range(arguments.seeds):
                part = sample(table, min(n_rows, len(table.rows("train"))), seed)
                for model, runner in (("mdl", run_mdl), ("lightgbm", run_lightgbm)):
                    key = (dataset, str(n_rows), model, str(seed))
                    if key in done():
                        continue
                    start = time.perf_counter()
                    found = runner(part, seed)
                    seconds = time.perf_counter() - start
                    wanted = METRICS[table.task]
                    values = {k: v for k, v in found.items() if k.removeprefix("base_") in wanted}
                    append(key, values, seconds)
                    print(*key, {k: round(v, 4) for k, v in values.items()}, f"{seconds:.0f}s", flush=True)


if __name__ == "__main__":
    main()

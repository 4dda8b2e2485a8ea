"""One run: fit a model on a table and measure it on the test rows. Called in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import torch

from fielddep.config.settings import Config
from fielddep.experiments.jobs import peak_mb
from fielddep.training.fit import fit
from loaders import Table, load
from rivals import RIVALS, TEST, TreeRows, held_out_metrics

LIBRARIES = {"fielddep": "torch", "lightgbm": "lightgbm", "catboost": "catboost"}
"""The library that a model rests on, by model."""
MODELS = tuple(LIBRARIES)
METRICS = {"binary": ("logloss", "auc"), "multiclass": ("logloss", "accuracy"), "regression": ("rmse", "mae", "r2")}
"""Metrics of a task; the first is the loss."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Metrics of the test rows and what the fit cost.

    Attributes:
        metrics: by name.
        seconds: wall time of the fit, from the raw table.
        cpu_seconds: processor time of all threads meanwhile.
        peak_mb: largest memory of the process, including libraries and the table.
        library: name and version of the library.
    """

    metrics: dict[str, float]
    seconds: float
    cpu_seconds: float
    peak_mb: float
    library: str


def measure(name: str, model: str, seed: int, threads: int) -> Measurement:
    """Fit and measure; the seed decides the split and is that of the model."""
    table = load(name)
    torch.set_num_threads(threads)
    start, cpu = time.perf_counter(), time.process_time()
    evaluate = _fit_fielddep(table, seed) if model == "fielddep" else _fit_rival(table, model, seed, threads)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    library = LIBRARIES[model]
    return Measurement(
        metrics=evaluate(),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_mb=peak_mb(),
        library=f"{library} {metadata.version(library)}",
    )


def _fit_rival(table: Table, model: str, seed: int, threads: int) -> Callable[[], dict[str, float]]:
    rows = TreeRows(table, table.parts(seed))
    predict = RIVALS[model](rows, table.source.task, seed, threads)
    return lambda: held_out_metrics(rows, predict, table.source.task)


def _fit_fielddep(table: Table, seed: int) -> Callable[[], dict[str, float]]:
    """Fit with defaults. The task is given, as it is to the trees; nothing is said about the fields."""
    source, parts = table.source, table.parts(seed)
    settings = {"data.target": source.target, "data.task": source.task, "train.seed": seed}
    found = dict(fit(table.frame, Config().replace(settings), parts=parts).metrics["test"])
    if source.task == "regression":
        variance = float(table.frame[source.target].to_numpy()[parts == TEST].var())
        found |= {"rmse": found["mse"] ** 0.5, "r2": 1 - found["mse"] / variance}
    return lambda: {name: found[name] for name in METRICS[source.task]}

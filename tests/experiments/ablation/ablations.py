"""Ablations for tests: plans, and results that are made up from the settings of a run instead of trained."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fielddep.experiments import jobs as jobs_module
from fielddep.experiments.ablation import ablate as files
from fielddep.experiments.ablation.plan import AblationPlan, ablated_contenders, parse_questions
from fielddep.experiments.ablation.trainings import AblationJob, at_steps
from fielddep.experiments.plan import Plan, config_of
from fielddep.experiments.results import RunResult
from fielddep.store.store import Store
from tests.conftest import quick_config, small_frame
from tests.experiments.runs import run_here
from tests.stores import write_store

MakeUp = Callable[[AblationJob, int, str], dict[str, float]]
"""Figures of a run on a part of the rows, evaluated with a number of steps."""


def plan_of(what: str = "all", *, seeds: int | None = 2, configs: Path | None = None, **others: Any) -> AblationPlan:
    questions = parse_questions(what)
    keep_failed = bool(others.pop("keep_failed", False))
    runs = Plan(
        contenders=ablated_contenders(questions), budget=None, configs=configs, threads=1, keep_failed=keep_failed
    )
    return AblationPlan(questions=questions, runs=runs, seeds=seeds, **others)


def small_store(folder: Path) -> Store:
    return write_store(folder, small_frame(), quick_config(data__crosses="none"))


def paper_like(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
    """Figures of which all of the paper's claims are true, a little different from seed to seed."""
    model = config_of(job.config).model
    loss = {"refined": 0.3, "none": 0.4, "global": 0.45}[model.dependencies] + 0.001 * job.seed
    beyond, decades = n_steps - model.n_inner_steps, math.log10(model.sparsity / 10)
    loss += 0.02 * (-beyond if part == "train" else abs(beyond)) + 0.01 * abs(model.n_inner_steps - 4)
    loss += 0.02 * (-decades if part == "train" else abs(decades))
    loss += 0.03 * abs(len(model.hidden) - 2) + abs(model.global_penalty - 0.1) / 1000
    figures = {"logloss": loss, "auc": 1 - loss, "calibration_error": 0.01}
    if model.dependencies == "none":
        return figures
    return {**figures, "dependency_loss": 5 / (1 + n_steps), "mu_std": 1 / (1 + model.sparsity)}


def made_up(job: AblationJob, make_up: MakeUp) -> RunResult:
    """The result of a job."""
    own = config_of(job.config).model.n_inner_steps
    metrics = {part: dict(make_up(job, own, part)) for part in ("train", "validation", "test")}
    for part, figures in metrics.items():
        for n_steps in job.inner_steps:
            figures |= {at_steps(name, n_steps): value for name, value in make_up(job, n_steps, part).items()}
    blank = dataclasses.replace(job.failed(""), error=None)
    return dataclasses.replace(blank, metrics=metrics, train_seconds=1.0, n_parameters=10)


def fake_runs(monkeypatch: pytest.MonkeyPatch, make_up: MakeUp = paper_like, *, draws: bool = False) -> list[str]:
    """Let runs make up their results; what was run is listed as it goes, as "name-seed".

    Pictures take seconds each, and are left out unless they are asked for.
    """
    names: list[str] = []

    def run(job: AblationJob) -> RunResult:
        names.append(f"{job.contender}-{job.seed}")
        return made_up(job, make_up)

    monkeypatch.setattr(AblationJob, "run", run)
    monkeypatch.setattr(jobs_module, "run_tasks", run_here)
    if not draws:
        monkeypatch.setattr(files, "draw", lambda result, path: None)
    return names

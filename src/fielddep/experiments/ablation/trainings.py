"""Trainings of an ablation: each is run once per seed, whichever questions it answers, and measured on all parts.

A trained MDL is also evaluated with other numbers of refinement steps, and its dependencies are measured. Rows are read
chunk by chunk, so they may be larger than memory.

Shape legend: B rows, F fields (m).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl
import torch

from fielddep.artifacts.run import source_version
from fielddep.config.metrics import in_order
from fielddep.encoding.rows import Batch, sample_rows
from fielddep.encoding.target import Target
from fielddep.experiments.ablation.plan import (
    EVALUATED_STEPS,
    LAMBDA,
    TRAIN_ROWS,
    TRAINED_STEPS,
    AblationPlan,
    Point,
    Sweep,
    Training,
    Value,
    steps_training,
    zeta_sweep,
)
from fielddep.experiments.jobs import Job, run_jobs, without_loss
from fielddep.experiments.plan import CONFIGS, ModelSettings, Workspace, settings_toml
from fielddep.experiments.results import RunResult
from fielddep.nn.mdl import MDL
from fielddep.nn.model import BATCH_ROWS
from fielddep.store.shards import StorePart
from fielddep.store.store import Store
from fielddep.tables.files import write_text
from fielddep.training.fit import Trained
from fielddep.training.metrics import measure
from fielddep.training.mixing import find_mix

PARTS = ("train", "validation", "test")
DEPENDENCY_LOSS, MU_STD = "dependency_loss", "mu_std"
"""Mean over rows of L(W(T), mu(T)), and of the standard deviation over fields of mu(T)/lambda."""
OF_DEPENDENCIES: Mapping[str, str] = {
    LAMBDA: MU_STD,
    EVALUATED_STEPS: DEPENDENCY_LOSS,
    TRAINED_STEPS: DEPENDENCY_LOSS,
}
"""The figure of the dependencies that is shown next to the metrics, by setting."""
COLUMNS: dict[str, pl.DataType] = {
    **dict.fromkeys(("dataset", "what", "setting", "setting_value"), pl.String()),
    "seed": pl.Int64(),
    **dict.fromkeys(("split", "metric"), pl.String()),
    "value": pl.Float64(),
}
ALONE = "alone"
"""Form of an evaluation: the direct networks alone."""
SAMPLE_SEED = 0
"""All runs are measured on the same training rows."""
ZETA_SEEDS = 1
"""Runs of every zeta: seed 0 chooses."""

Runs = Mapping[tuple[str, int], RunResult]
"""Runs by the name of their training and their seed."""


@dataclass(frozen=True, kw_only=True)
class AblationJob(Job):
    """A run that is also measured on training rows, and whose dependencies are measured.

    Attributes:
        inner_steps: numbers of refinement steps to evaluate the trained model with, besides its own.
        train_rows: training rows to measure on at most.
        alone: whether the direct networks are also measured alone, if there are some.
    """

    inner_steps: Sequence[int] = ()
    train_rows: int = TRAIN_ROWS
    alone: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """What a saved result must have been made from to count for this job."""
        return {**super().identity, "inner_steps": list(self.inner_steps), "train_rows": self.train_rows}

    def result_of(self, trained: Trained) -> RunResult:
        """Figures of training, validation and test rows, and what the run cost."""
        assert isinstance(trained.model, MDL)
        result = super().result_of(trained)  # first, so that its memory is that of training and predicting
        rows = measured_rows(trained.prepared.parts, self.train_rows)
        model, target = trained.model, trained.prepared.target
        metrics = {part: self._figures(model, target, rows[part]) for part in rows}
        if self.alone and model.mix_P is not None:
            with direct_alone(model, target, rows["validation"]):
                for part, own in metrics.items():
                    alone = without_loss(measure(model.outputs, target, rows[part].chunks()).metrics)
                    own |= {f"{name}@{ALONE}": value for name, value in alone.items()}
        return dataclasses.replace(result, metrics=metrics)

    def _figures(self, model: MDL, target: Target, rows: StorePart) -> dict[str, float]:
        figures = row_figures(model, target, rows)
        for n_steps in self.inner_steps:
            with_steps = row_figures(model, target, rows, n_steps)
            figures |= {at_steps(name, n_steps): value for name, value in with_steps.items()}
        return figures


def at_steps(metric: str, n_steps: int | None) -> str:
    """Name of a metric measured with a number of refinement steps; None: that of the training.

    Example:
        >>> at_steps("auc", None), at_steps("auc", 3)
        ('auc', 'auc@3')
    """
    return metric if n_steps is None else f"{metric}@{n_steps}"


def measured_rows(parts: Mapping[str, StorePart], n_train_rows: int) -> dict[str, StorePart]:
    """Rows of all parts, with a random sample of at most `n_train_rows` training rows."""
    train = parts["train"]
    if len(train) <= n_train_rows:
        return dict(parts)
    return {**parts, "train": StorePart.of(sample_rows(train.chunks(), n_train_rows, seed=SAMPLE_SEED).rows)}


def row_figures(model: MDL, target: Target, rows: StorePart, n_steps: int | None = None) -> dict[str, float]:
    """Metrics of rows and, if the network sees dependencies, figures of these; by default with the T of training."""
    with inner_steps(model, n_steps):
        metrics = without_loss(measure(model.outputs, target, rows.chunks()).metrics)
        if model.config.dependencies == "none":
            return metrics
        return {**metrics, **dependency_figures(model, rows)}


@contextmanager
def inner_steps(model: MDL, n_steps: int | None) -> Iterator[None]:
    """Let the model take another number of refinement steps, with the same weights."""
    before = model.refinement.n_inner_steps
    model.refinement.n_inner_steps = before if n_steps is None else n_steps
    try:
        yield
    finally:
        model.refinement.n_inner_steps = before


@contextmanager
def direct_alone(model: MDL, target: Target, validation: StorePart) -> Iterator[None]:
    """Let the model predict with its direct networks alone, with weights from validation rows."""
    assert model.mix_P is not None
    before = model.mix_P.clone()
    find_mix(model, target, validation, direct_only=True)
    model.mix_P[-1] = 0.0
    try:
        yield
    finally:
        model.mix_P.copy_(before)


@torch.no_grad()
def dependency_figures(model: MDL, rows: StorePart) -> dict[str, float]:
    """Weighted means over rows of the dependency loss and of the spread of mu/lambda over fields."""
    sums, total = torch.zeros(2, dtype=torch.float64), 0.0
    for chunk in rows.chunks():
        for start in range(0, len(chunk), BATCH_ROWS):
            batch = chunk.batch(slice(start, start + BATCH_ROWS)).to(model.bias.device)
            values_2B = _dependency_values(model, batch).double().cpu()
            weight_B = torch.ones(len(batch)) if batch.weight_B is None else batch.weight_B.cpu()
            sums += values_2B @ weight_B.double()
            total += float(weight_B.sum(dtype=torch.float64))
    loss, spread = (sums / total).tolist()
    return {DEPENDENCY_LOSS: loss, MU_STD: spread}


def _dependency_values(model: MDL, batch: Batch) -> torch.Tensor:
    """Dependency loss of every row, and the standard deviation over fields of its mu/lambda (2, B)."""
    state = model.refinement(model.fields_of(model.embed(batch.inputs)))
    sparsity = model.config.sparsity
    return torch.stack([state.loss_BF(sparsity).sum(dim=1), (state.mu_BF / sparsity).std(dim=1, correction=0)])


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The runs of a setting and its values; there may be others among them, and more seeds than count."""

    dataset: str
    sweep: Sweep
    runs: Runs
    n_seeds: int

    def runs_of(self, point: Point) -> list[RunResult]:
        """All runs of a point, including failed ones."""
        found = (self.runs.get((point.training.name, seed)) for seed in range(self.n_seeds))
        return [run for run in found if run is not None]

    def values(self, value: Value, part: str, metric: str) -> dict[int, float]:
        """A metric of one value of the setting, by seed, from the finished runs that have it."""
        point = next(point for point in self.sweep.points if point.value == value)
        name = point.figure(metric)
        named = {run.seed: run.metrics.get(part, {}).get(name) for run in self.runs_of(point) if run.error is None}
        return {seed: figure for seed, figure in named.items() if figure is not None}

    def finite(self, part: str, metric: str) -> dict[Value, list[float]]:
        """The same without seeds and without what is not a number, for every value of the setting."""
        found = {point.value: self.values(point.value, part, metric) for point in self.sweep.points}
        return {value: list(filter(math.isfinite, by_seed.values())) for value, by_seed in found.items()}

    def curves(self, part: str, metric: str) -> dict[int, list[float]]:
        """A metric over all values of the setting, by seed; a seed that lacks one of them is skipped."""
        by_value = [self.values(point.value, part, metric) for point in self.sweep.points]
        seeds = [seed for seed in range(self.n_seeds) if all(seed in figures for figures in by_value)]
        return {seed: [figures[seed] for figures in by_value] for seed in seeds}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that are shown: those of the task, the loss first, then that of the dependencies."""
        found = {name for run in self.runs.values() for figures in run.metrics.values() for name in figures}
        of_dependencies = OF_DEPENDENCIES.get(self.sweep.setting)
        known = in_order(dict.fromkeys(found), brief=True)
        return (*known, *([of_dependencies] if of_dependencies in found else []))

    @property
    def failures(self) -> tuple[str, ...]:
        """One note per value with failed runs."""
        notes = []
        for point in self.sweep.points:
            reasons = [run.error for run in self.runs_of(point) if run.error is not None]
            if reasons:
                listed = "; ".join(dict.fromkeys(reasons))
                notes.append(f"{point.training.name}: {len(reasons)} of {self.n_seeds} runs failed: {listed}")
        return tuple(dict.fromkeys(notes))

    def to_frame(self) -> pl.DataFrame:
        """One row per figure."""
        rows = [
            (self.dataset, self.sweep.question, self.sweep.setting, str(point.value), run.seed, part, name, figure)
            for point in self.sweep.points
            for run in self.runs_of(point)
            for part in PARTS
            for name, figure in _figures(run, part, point).items()
        ]
        return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _figures(run: RunResult, part: str, point: Point) -> dict[str, float]:
    """Figures of a run that belong to a point, by the plain names of their metrics."""
    found = run.metrics.get(part, {})
    named = {name: found.get(point.figure(name)) for name in found if "@" not in name}
    return {name: figure for name, figure in named.items() if figure is not None}


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """How the trainings of an ablation are run, from MDL with its tuned settings and their name.

    `stores` has the rows of trainings that do not have those of all others, by name.
    """

    work: Workspace
    plan: AblationPlan
    base: Training
    settings: str
    stores: Mapping[str, Store] = field(default_factory=dict)

    def run(self, sweeps: Iterable[Sweep], *, n_seeds: int | None = None, what: str = "runs") -> Runs:
        """Results by training and seed, after the missing runs; the default number of seeds is that of the plan."""
        wanted: dict[str, tuple[Training, int]] = {}
        for sweep in sweeps:
            for training in sweep.trainings:
                most = wanted.get(training.name, (training, 0))[1]
                wanted[training.name] = training, max(most, n_seeds or self.plan.n_seeds(sweep.question))
        for training, _ in wanted.values():
            write_text(self.work.folder / CONFIGS / f"{training.name}.toml", settings_toml(training.config))
        jobs = [  # seed by seed, so that an interrupted ablation has complete curves of fewer seeds
            self._job(training, seed)
            for seed in range(max(most for _, most in wanted.values()))
            for training, most in wanted.values()
            if seed < most
        ]
        results = run_jobs(jobs, self.work, what=what)
        return {(job.contender, job.seed): result for job, result in zip(jobs, results, strict=True)}

    def _job(self, training: Training, seed: int) -> AblationJob:
        """One run. What is measured follows from the settings alone, so that any question can use its result."""
        is_evaluated = training.config == steps_training(self.base, self.plan).config
        rows = self.stores[training.rows] if training.rows else self.work.store
        return AblationJob.of(
            dataclasses.replace(self.work, store=rows),
            training.name,
            seed,
            ModelSettings(config=training.config, name=self.settings),
            commit=self._commit,
            inner_steps=self.plan.evaluated_steps if is_evaluated else (),
            train_rows=self.plan.train_rows,
            alone=training == self.base,
        )

    @cached_property
    def _commit(self) -> str:
        return source_version()

    def choose_zeta(self, chosen: ModelSettings) -> tuple[SweepResult, Training]:
        """Every zeta of *global dep*, with the one of the lowest validation loss as the control, and its training.

        If no run was successful it is the smallest zeta, so that the table of the variants shows the reason.
        """
        sweep = zeta_sweep(chosen.config, self.plan)
        runs = self.run([sweep], n_seeds=ZETA_SEEDS, what="runs that choose zeta")
        result = SweepResult(dataset=self.work.dataset, sweep=sweep, runs=runs, n_seeds=ZETA_SEEDS)
        found = result.finite("validation", result.metrics[0]) if result.metrics else {}
        losses = {value: figures[0] for value, figures in found.items() if figures}
        best = min(losses, key=lambda value: losses[value], default=sweep.points[0].value)
        marked = dataclasses.replace(sweep, control=best, control_is="chosen")
        training = next(point.training for point in sweep.points if point.value == best)
        return dataclasses.replace(result, sweep=marked), training

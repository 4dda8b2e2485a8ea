"""One training of an ablation and what is measured on it: `python -m fielddep.experiments.ablation.run JOB`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fielddep.experiments.ablation.plan import TRAIN_ROWS
from fielddep.experiments.results import RunResult
from fielddep.experiments.single_run import Job, main

if TYPE_CHECKING:
    from fielddep.data.store.loader import Rows
    from fielddep.experiments.trained import Trained
    from fielddep.predictor import Predictor
    from fielddep.prepared import TrainingData

DEPENDENCY_LOSS, MU_STD = "dependency_loss", "mu_std"
"""Mean over rows of L(W(T), mu(T)), and of the standard deviation over fields of mu(T)/lambda."""


@dataclass(frozen=True, kw_only=True)
class AblationJob(Job):
    """A run that is measured on training rows too, its dependencies among what is measured.

    Attributes:
        inner_steps: numbers of refinement steps that the trained model is evaluated with, beside its own.
        train_rows: training rows at most that it is measured on.
    """

    inner_steps: Sequence[int] = ()
    train_rows: int = TRAIN_ROWS

    MODULE: ClassVar[str] = "fielddep.experiments.ablation.run"

    @property
    def identity(self) -> dict[str, Any]:
        """What a result must have been made from to be that of this job."""
        return {**super().identity, "inner_steps": list(self.inner_steps), "train_rows": self.train_rows}

    def measure(self, data: TrainingData, trained: Trained) -> RunResult:
        """Figures of training, validation and test rows, and what the run cost."""
        from fielddep.experiments.ablation.measures import measured_rows

        assert trained.predictor is not None
        result = super().measure(data, trained)  # first, as its memory is to be that of training and predicting
        rows = measured_rows(data.parts, self.train_rows)
        metrics = {part: self._figures(trained.predictor, rows[part]) for part in rows}
        return dataclasses.replace(result, metrics=metrics)

    def _figures(self, predictor: Predictor, rows: Rows) -> dict[str, float]:
        from fielddep.experiments.ablation.measures import row_figures

        figures = row_figures(predictor, rows)
        for n_steps in self.inner_steps:
            with_steps = row_figures(predictor, rows, n_steps)
            figures |= {at_steps(name, n_steps): value for name, value in with_steps.items()}
        return figures


def at_steps(metric: str, n_steps: int | None) -> str:
    """Name of a metric that is taken with a number of refinement steps; None: with that of the training.

    Example:
        >>> at_steps("auc", None), at_steps("auc", 3)
        ('auc', 'auc@3')
    """
    return metric if n_steps is None else f"{metric}@{n_steps}"


if __name__ == "__main__":
    main(AblationJob)

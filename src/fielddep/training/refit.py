"""Refit: once the best number of passes is known, train again on training and validation rows together.

Nothing is held out, so nothing is evaluated: learning rate and number of passes are those that led to the best weights
of the first training, and the weights at the end are kept. Evidence is counted again on all these rows
(`store/recount.py`); everything else of the encoder stays that of the training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fielddep.config.settings import TrainConfig
from fielddep.training.checkpoint import Evaluation
from fielddep.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The way to the best weights of a training.

    Attributes:
        ends: passes over the training rows at the end of each stretch between two evaluations, rising.
        rates: learning rate of each stretch.
    """

    ends: tuple[float, ...]
    rates: tuple[float, ...]

    @classmethod
    def of(cls, history: Sequence[Evaluation], config: TrainConfig) -> Passes:
        """Replay a training. What was trained between the best weights and a return to them does not count."""
        way: list[tuple[float, float]] = []
        n_best = n_bad = 0
        before = 0.0
        for evaluation in history:
            way.append((evaluation.epoch - before, evaluation.lr))
            before = evaluation.epoch
            n_bad = 0 if evaluation.best else n_bad + 1
            if evaluation.best:
                n_best = len(way)
            elif n_bad >= config.plateau_patience:
                n_bad = 0
                way = way[:n_best] if config.plateau_restore else way
        ends = [sum(length for length, _ in way[: n + 1]) for n in range(n_best)]
        return cls(ends=tuple(ends), rates=tuple(rate for _, rate in way[:n_best]))

    @property
    def n(self) -> float:
        """All passes."""
        return self.ends[-1]

    def rate(self, epoch: float) -> float:
        """Learning rate after this many passes."""
        return next((rate for end, rate in zip(self.ends, self.rates, strict=True) if epoch < end), self.rates[-1])


class Refit(Trainer):
    """Trains for a given number of passes, without validation rows and checkpoints."""

    def follow(self, passes: Passes) -> None:
        """Train along a way that is known."""
        self.passes = passes
        self.n_all_steps, self.n_steps = self.n_steps, max(1, round(passes.n * self.train.n_batches))
        self.n_points = max(1, round(self.n_steps / self.eval_interval))
        self.state.lr = passes.rate(0.0)
        self.fit()

    def _is_due(self) -> bool:
        """At evenly spread steps, the last among them; there the running mean of the weights takes a point."""
        step = self.state.step
        return step * self.n_points // self.n_steps > (step - 1) * self.n_points // self.n_steps

    def _evaluate_and_decide(self, last: bool) -> None:
        with self._averaged():
            if last:
                self._best.keep(self.model, self.state.step)
        self.state.best_step = self.state.step
        self.state.lr = self.passes.rate(self.state.step / self.train.n_batches)
        self.state.finished = last

    def _decay(self) -> float:
        """As in the first training, the learning rate would be zero after `max_epochs` passes, not at the end."""
        return 1.0 - (self.state.step - 1) / self.n_all_steps if self.config.lr_decay == "linear" else 1.0

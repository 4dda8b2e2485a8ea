"""Lookers-on of a search and of a comparison: they are told what happens and can change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fielddep.experiments.results import RunResult
    from fielddep.experiments.trial_records import TrialRecord


class SearchLooker:
    """Looks on while a search goes on. Every event is optional."""

    def on_begin(self, number: int) -> None:
        """A trial begins."""

    def on_loss(self, number: int, loss: float) -> None:
        """A trial was evaluated."""

    def on_end(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """A trial is over."""


class ComparisonLooker:
    """Looks on while a comparison goes on. Every event is optional."""

    def on_plan(self, what: str, n_todo: int, n_done: int) -> None:
        """So many searches or runs are to do, beside those that are done."""

    def on_begin(self, title: str) -> None:
        """A search or a run begins."""

    def on_searched(self, title: str, failure: str | None) -> None:
        """A search is over; why it failed, or None."""

    def on_run(self, result: RunResult) -> None:
        """A run is over."""

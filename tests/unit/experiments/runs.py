"""Runs made up for the tests of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fielddep.experiments.results import RunResult


def runs(model: str, auc: Sequence[float | str], **others: Any) -> list[RunResult]:
    """One run a seed: a number is its test AUC, a text is why it failed."""
    common: dict[str, Any] = {"dataset": "toy", "model": model} | others
    return [
        RunResult(**common, seed=seed, error=value)
        if isinstance(value, str)
        else RunResult(**common, seed=seed, metrics={"test": {"auc": value}})
        for seed, value in enumerate(auc)
    ]

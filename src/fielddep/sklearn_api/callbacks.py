"""Callbacks: who may watch the training of an estimator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from fielddep.errors import ConfigError
from fielddep.observer import Observer, Observers
from fielddep.training.checkpoint import Evaluation

Callback = Observer | Callable[[Evaluation], Any]


def observer_of(callbacks: Iterable[Callback] | None, *, verbose: bool) -> Observer:
    """One observer of everyone who watches; a plain callable is told of evaluations.

    Raises:
        ConfigError: something is neither an observer nor callable.
    """
    watching = [_observer(callback) for callback in callbacks or ()]
    return Observers(*([_OnEvaluation(_print)] if verbose else []), *watching)


def _observer(callback: object) -> Observer:
    if isinstance(callback, Observer):
        return callback
    if callable(callback) and not isinstance(callback, type):
        return _OnEvaluation(callback)
    raise ConfigError(
        f"callbacks must be observers, or functions of an evaluation; given {callback!r}. Give an object of "
        "fielddep.observer.Observer, or a function"
    )


class _OnEvaluation(Observer):
    """Calls a function with every evaluation; what it returns is ignored."""

    def __init__(self, function: Callable[[Evaluation], Any]) -> None:
        self.function = function

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.function(evaluation)


def _print(evaluation: Evaluation) -> None:
    print(evaluation, file=sys.stderr)

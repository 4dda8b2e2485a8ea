"""The loop: what it decides by."""

from __future__ import annotations

import numpy as np
import pytest

from fielddep.training.fit import Trained, fit
from tests.conftest import quick_config, small_frame


def fit_in_unit(unit: float, **settings: object) -> Trained:
    """A regression on the same rows, its target in one unit or another."""
    frame = small_frame(200)
    noise = np.random.default_rng(1).normal(size=len(frame))
    priced = frame.with_columns(price=(frame["good"].to_numpy() * 3.0 + noise) * unit).drop("good")
    return fit(priced, quick_config(**{"data.target": "price", **settings}))


@pytest.mark.parametrize("exponent", [-500, -80, 80, 540])
def test_early_stopping_does_not_depend_on_the_unit_of_the_target(exponent):
    """Powers of two, so that standardised targets are equal to the last bit."""
    expected, found = (
        fit_in_unit(unit, **{"train.max_epochs": 6, "train.patience": 2}) for unit in (1.0, 2.0**exponent)
    )
    assert [e.best for e in found.history] == [e.best for e in expected.history]
    assert sum(e.best for e in found.history) > 1
    for name, weight in expected.model.state_dict().items():
        assert weight.equal(found.model.state_dict()[name])


def test_smallest_fall_is_in_the_unit_of_the_target():
    """A fall of a million is nothing to squared errors of numbers in millions, and is never reached in units."""
    small, large = (fit_in_unit(unit, **{"train.min_delta": 1e6}) for unit in (1.0, 1e6))
    assert sum(e.best for e in small.history) == 1
    assert sum(e.best for e in large.history) > 1

"""Labels: cut without losing either part, and moved apart."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fielddep.explain.labels import cut, spread, value_label


@pytest.mark.parametrize("n_characters", [8, 13, 20])
def test_no_label_is_longer_than_allowed(n_characters: int) -> None:
    for name in ("a", "field", "a very long name of a field"):
        for value in ("", "x", "a value", "a\nvery  long value indeed"):
            label = value_label(name, value, n_characters)
            assert len(label) <= n_characters
            assert label.startswith(name[0])
            assert label.endswith(f": {value[-1:]}" if len(value) < 2 else value[-1])
    assert cut("abcdefghij", 5) == "ab…ij"


def test_what_fits_is_whole() -> None:
    assert value_label("hour", "19", 8) == "hour: 19"
    assert cut("two\nlines", 9) == "two lines"


@pytest.mark.parametrize(
    "values", [[5.0], [0.0, 0.0, 0.0], [9.9, 10.0, 10.0], [1.0, 1.1, 5.0, 9.0], [0.1 * n for n in range(11)]]
)
def test_places_are_apart_and_within(values: list[float]) -> None:
    places = spread(values, 0.0, 10.0, 1.0)
    assert all(after - before >= 1 - 1e-9 for before, after in pairwise(places))
    assert places[0] >= 0 and places[-1] <= 10


def test_values_that_are_apart_stay_in_their_places() -> None:
    assert spread([1.0, 4.0, 8.5], 0.0, 10.0, 1.0) == [1.0, 4.0, 8.5]

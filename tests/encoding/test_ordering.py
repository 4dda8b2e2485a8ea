"""Keyed draws, and places in sorted order found without sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.encoding import ordering as module
from fielddep.encoding.ordering import draw, one_of, order_statistics, select_smallest

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@given(seed=st.integers(0, 2**32 - 1), stream=st.integers(0, 2**33), row=st.integers(0, 2**40))
def test_a_draw_is_splitmix64(seed: int, stream: int, row: int) -> None:
    expected = mix((mix((mix((seed + GOLDEN) & MASK) + stream) & MASK) + (row + 1) * GOLDEN) & MASK)
    assert draw(seed, stream, np.array([row])).tolist() == [expected]


def test_draws_never_change() -> None:
    """The parts of every saved run rest on these numbers."""
    assert draw(0, 0, np.arange(3)).tolist() == [6235967106033911276, 4964577235801436555, 5009519748041543987]


def test_no_two_rows_draw_the_same_and_streams_differ() -> None:
    rows = np.arange(200_000)
    draws = [draw(seed, stream, rows) for seed, stream in ((0, 0), (0, 1), (1, 0))]
    for one in draws:
        assert len(np.unique(one)) == len(rows)
        assert abs(one.astype(np.float64).mean() / 2**64 - 0.5) < 0.004
    assert abs(np.corrcoef(np.array(draws, dtype=np.float64))[np.triu_indices(3, 1)]).max() < 0.01


def test_one_of_is_uniform() -> None:
    counts = np.bincount(one_of(draw(3, 7, np.arange(100_000)), 7), minlength=7)
    assert len(counts) == 7
    assert np.abs(counts - 100_000 / 7).max() < 5 * np.sqrt(100_000 / 7)


# --- select_smallest ------------------------------------------------------------------------------------------


def by_sorting(draws: np.ndarray, strata: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    chosen = np.zeros(len(draws), dtype=bool)
    for stratum, n in enumerate(wanted):
        rows = np.flatnonzero(strata == stratum)
        chosen[rows[np.argsort(draws[rows])[:n]]] = True
    return chosen


@settings(deadline=None)
@given(
    n_rows=st.integers(1, 3000),
    n_strata=st.integers(1, 30),
    share=st.floats(0, 1),
    chunk=st.integers(50, 4000),
    seed=st.integers(0, 100),
)
def test_selection_equals_sorting(n_rows: int, n_strata: int, share: float, chunk: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    strata = rng.integers(-1, n_strata, n_rows)
    draws = draw(seed, 0, np.arange(n_rows))
    sizes = np.bincount(strata[strata >= 0], minlength=n_strata)
    wanted = np.stack([np.round(sizes * share).astype(int), rng.integers(0, sizes + 1)])
    chunks = [(draws[i : i + chunk], strata[i : i + chunk]) for i in range(0, n_rows, chunk)]
    bounds = select_smallest(lambda: chunks, sizes, wanted)
    for some, bound in zip(wanted, bounds, strict=True):
        expected = by_sorting(draws, strata, some)
        assert ((draws < bound[strata]) & (strata >= 0)).tolist() == expected.tolist()


def test_selection_keeps_few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    bounds_of = module._bounds

    def spy(near: list[tuple[np.ndarray, np.ndarray]], *rest: np.ndarray) -> np.ndarray | None:
        kept.append(sum(len(draws) for draws, _ in near))
        return bounds_of(near, *rest)

    monkeypatch.setattr(module, "_bounds", spy)
    n_rows = 1_280_000
    draws = draw(0, 0, np.arange(n_rows))
    chunks = [(part, None) for part in np.array_split(draws, 9)]
    bounds = select_smallest(lambda: chunks, np.array([n_rows]), np.array([[128_000], [256_000]]))
    assert [int((draws < bound).sum()) for bound in bounds[:, 0]] == [128_000, 256_000]
    assert max(kept) < 20 * np.sqrt(n_rows)


def test_selection_looks_further_where_draws_are_uneven() -> None:
    """Draws that are not uniform at all: the places are still exact."""
    draws = np.arange(100_000, dtype=np.uint64)
    bounds = select_smallest(lambda: [(draws, None)], np.array([100_000]), np.array([[777], [60_000]]))
    assert bounds.tolist() == [[777], [60_000]]


# --- order_statistics -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    numbers=st.lists(st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0]), min_size=1, max_size=60),
    seed=st.integers(0, 9),
)
def test_order_statistics_equal_sorting(numbers: list[float], seed: int) -> None:
    values = np.array(numbers)
    places = np.random.default_rng(seed).integers(0, len(values), 5)
    found = order_statistics(lambda: np.array_split(values, 3), places)
    assert found.tolist() == np.sort(values)[places].tolist()


def test_order_statistics_of_many_numbers() -> None:
    values = np.random.default_rng(0).normal(size=50_000) * 1e6
    places = np.array([0, 1, 25_000, 49_999])
    found = order_statistics(lambda: np.array_split(np.append(values, np.nan), 7), places)
    assert found.tolist() == np.sort(values)[places].tolist()

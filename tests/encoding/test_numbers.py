import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fielddep.encoding.numbers import (
    MAX_SCALED,
    Moments,
    QuantileBins,
    ScaledNumbers,
    default_n_bins,
    log2_intervals,
    log2_texts,
)
from tests.oracle import encoder as oracle
from tests.oracle.encoder import fit_bins, fit_scaled


def floats(values: list[float | None]) -> pl.Series:
    return pl.Series("x", values, dtype=pl.Float64)


def mean_and_std(values: list[float]) -> tuple[float, float]:
    moments = Moments.of(np.array(values))
    return moments.mean, moments.std


@pytest.mark.parametrize(("n_rows", "n_bins"), [(10, 8), (400, 8), (1000, 20), (3200, 64), (10**6, 64)])
def test_default_n_bins(n_rows: int, n_bins: int) -> None:
    assert default_n_bins(n_rows) == n_bins


def test_scaling_with_missing_values() -> None:
    scaled = fit_scaled(floats([1.0, 3.0, None]))
    assert (scaled.mean, scaled.std, scaled.counts.tolist()) == (2.0, 1.0, [1, 2])
    ids, numbers = scaled.encode(floats([None, 3.0, 2.0, 1e9, -1e9]))
    assert ids.tolist() == [0, 1, 1, 1, 1]
    assert numbers.tolist() == [1.0, 1.0, 0.0, MAX_SCALED, -MAX_SCALED]
    assert numbers.dtype == np.float32
    assert scaled.decode(ids[:3], numbers[:3]).to_list() == [None, 3.0, 2.0]


def test_missing_is_the_mean_where_training_had_none() -> None:
    ids, numbers = fit_scaled(floats([1.0, 3.0])).encode(floats([None]))
    assert (ids.tolist(), numbers.tolist()) == ([1], [0.0])


def test_scaled_field_without_any_number_in_training() -> None:
    ids, numbers = fit_scaled(floats([None, None])).encode(floats([5.0, None]))
    assert (ids.tolist(), numbers.tolist()) == ([0, 0], [1.0, 1.0])


def test_scale_of_a_constant_and_of_huge_numbers() -> None:
    assert mean_and_std([0.1] * 7) == (0.1, 1.0)
    assert mean_and_std([]) == (0.0, 1.0)
    assert mean_and_std([-1e300, 1e300]) == (0.0, 1e300)
    assert mean_and_std([-1e-300, 1e-300])[1] == pytest.approx(1e-300)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=40), st.integers(1, 5))
def test_moments_of_chunks_are_those_of_all_numbers(values: list[float], n_chunks: int) -> None:
    merged = Moments()
    for chunk in np.array_split(np.array(values), n_chunks):
        merged = merged.merge(Moments.of(chunk))
    mean, std = oracle.mean_and_std(floats(values))
    largest = max(map(abs, values))
    assert merged.n_rows == len(values)
    assert merged.mean == pytest.approx(mean, rel=1e-9, abs=1e-12 * largest)
    if std > 1e-6 * largest:
        assert merged.std == pytest.approx(std, rel=1e-6)


def test_moments_of_counts_are_those_of_the_rows() -> None:
    counted = Moments.of(np.array([-1.0, 2.0, 5.0]), np.array([3, 0, 2]))
    assert counted == Moments.of(np.array([-1.0, 5.0]), np.array([3, 2]))
    rows = Moments.of(np.array([-1.0, -1.0, -1.0, 5.0, 5.0]))
    assert (counted.n_rows, counted.low, counted.high) == (rows.n_rows, rows.low, rows.high) == (5, -1.0, 5.0)
    assert (counted.mean, counted.std) == pytest.approx((rows.mean, rows.std))


def test_quantile_bins_have_equal_mass_and_open_ends() -> None:
    bins = fit_bins(floats([float(v) for v in range(100)] + [None]), n_bins=4)
    assert bins.edges.tolist() == [25.0, 50.0, 75.0]
    assert bins.counts.tolist() == [1, 0, 25, 25, 25, 25]
    assert bins.encode(floats([-1e9, 24.9, 25.0, 1e9, None])).tolist() == [2, 2, 3, 5, 0]
    assert bins.encode(floats([1.0])).dtype == np.int32
    assert bins.labels().to_list() == ["<missing>", "<rare>", "(-inf, 25)", "[25, 50)", "[50, 75)", "[75, inf)"]


def test_a_dominating_number_has_a_bin_of_its_own() -> None:
    bins = fit_bins(floats([0.0] * 90 + [float(v) for v in range(1, 11)]), n_bins=6)
    assert bins.edges.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert bins.counts.tolist() == [0, 0, 90, 2, 2, 2, 2, 2]
    middle = fit_bins(floats([*range(10)] + [5.0] * 90), n_bins=3)
    assert middle.edges.tolist() == [4.0, 5.0, 6.0]
    assert middle.counts.tolist() == [0, 0, 4, 1, 91, 4]


def test_few_distinct_numbers_have_a_bin_each() -> None:
    bins = fit_bins(floats([0.5, 1.5, 2.5] * 10), n_bins=8)
    assert bins.counts.tolist() == [0, 0, 10, 10, 10]


def test_quantile_missing_where_training_had_none() -> None:
    assert fit_bins(floats([1.0, 2.0]), n_bins=2).encode(floats([None])).tolist() == [1]


def test_quantile_field_without_any_number_in_training() -> None:
    bins = fit_bins(floats([None, None]), n_bins=4)
    assert bins.counts.tolist() == [2, 0]
    assert bins.encode(floats([5.0, None])).tolist() == [1, 0]
    assert bins.labels().to_list() == ["<missing>", "<rare>"]


def test_json_round_trips() -> None:
    scaled = fit_scaled(floats([0.1, 0.7, None]))
    assert ScaledNumbers.from_json(scaled.to_json()) == scaled
    bins = fit_bins(floats([0.1, 0.7, None, 3.0]), n_bins=3)
    again = QuantileBins.from_json(bins.to_json())
    assert again.edges.tolist() == bins.edges.tolist()
    assert again.counts.tolist() == bins.counts.tolist()


def test_binning_of_counts_as_in_the_paper() -> None:
    numbers = floats([-3.0, 0.0, 1.0, 2.0, 2.9, 3.0, 8.0, 1000.0, None, 1e30])
    # ln(3)^2 = 1.21, ln(8)^2 = 4.32, ln(1000)^2 = 47.7, ln(1e30)^2 = 4771.7
    assert log2_texts(numbers).to_list() == ["-5", "-2", "-1", "0", "0", "1", "4", "47", None, "4771"]


def test_intervals_of_the_bins_of_counts() -> None:
    numbers = np.concatenate([np.arange(-20, 20_000), np.floor(np.exp(np.linspace(10, 30, 500)))]).astype(np.float64)
    bins = log2_texts(pl.Series(numbers))
    intervals = log2_intervals(bins).to_list()
    for number, interval in zip(numbers, intervals, strict=True):
        low, high = (float(end) for end in interval.strip("[)").split(", "))
        assert low <= number < high
    assert len(set(intervals)) == bins.n_unique()
    assert log2_intervals(pl.Series(["4771"])).to_list() == ["[9.94886e+29, 1.00211e+30)"]


@pytest.mark.parametrize("kind", ["normal", "counts", "heavy", "constant", "none"])
@pytest.mark.parametrize("n_bins", [2, 8, 64])
def test_different_numbers_and_their_counts_give_the_same_bins_and_scale(kind: str, n_bins: int) -> None:
    rng = np.random.default_rng(0)
    numbers = {
        "normal": rng.normal(size=900).round(2),
        "counts": rng.poisson(2, 900).astype(float),
        "heavy": np.where(rng.random(900) < 0.8, 0.0, rng.normal(size=900)),
        "constant": np.full(900, 3.5),
        "none": np.empty(0),
    }[kind]
    column = pl.Series(numbers, dtype=pl.Float64).append(pl.Series([None] * 7, dtype=pl.Float64))
    distinct, counts = np.unique(numbers, return_counts=True)
    bins, expected = QuantileBins.from_counts(distinct, counts, 7, n_bins), fit_bins(column, n_bins)
    assert bins.edges.tolist() == expected.edges.tolist()
    assert bins.counts.tolist() == expected.counts.tolist()
    known = np.sort(numbers)
    places = np.searchsorted(expected.edges, known, side="right")
    if len(known):
        assert expected.counts[2:].tolist() == np.bincount(places, minlength=len(expected.edges) + 1).tolist()
    scale, wanted = ScaledNumbers.of(Moments.of(distinct, counts), 7), fit_scaled(column)
    assert scale.counts.tolist() == wanted.counts.tolist()
    assert scale.mean == pytest.approx(wanted.mean, rel=1e-12)
    assert scale.std == pytest.approx(wanted.std, rel=1e-12)


def test_the_scale_of_huge_numbers_does_not_overflow() -> None:
    scale = ScaledNumbers.of(Moments.of(np.array([1e200, -1e200]), np.array([3, 3])), 0)
    assert (scale.mean, scale.std) == (0.0, pytest.approx(1e200))

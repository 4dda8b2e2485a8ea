from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fielddep.encoding.measures import MAX_MEASURE, Measure, ValueTargets, count_halves, half_of_rows, order_matters


def targets_of(numbers: np.ndarray, target: np.ndarray) -> ValueTargets:
    values, codes = np.unique(numbers, return_inverse=True)
    found = ValueTargets.centred(count_halves(codes, target, half_of_rows(0, len(target)), len(values)))
    return ValueTargets(numbers_V=values.astype(float), n_2V=found.n_2V, sum_2V=found.sum_2V)


def test_a_measure_is_not_moved_by_one_absurd_number() -> None:
    numbers = np.sort(np.random.default_rng(0).normal(50, 3, 999))
    with_outlier = np.append(numbers, 1e300)
    plain, odd = (Measure.of(values, np.ones(len(values), dtype=np.int64), 5) for values in (numbers, with_outlier))
    assert odd.centre == pytest.approx(plain.centre, rel=0.01)
    assert odd.unit == pytest.approx(plain.unit, rel=0.05)
    encoded = odd.encode(np.array([50.0, 1e300, -1e300, np.nan]))
    assert abs(encoded[0]) < 1
    assert encoded[1:3].tolist() == [MAX_MEASURE, -MAX_MEASURE]
    assert np.isnan(encoded[3])


def test_a_missing_number_is_the_median_if_none_was_missing_in_training() -> None:
    measure = Measure.of(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 1]))
    assert measure.encode(np.array([np.nan])).tolist() == [0.0]


@pytest.mark.parametrize("values", [[], [7.0], [0.0, 0.0, 0.0]])
def test_the_unit_of_a_constant_is_one(values: list[float]) -> None:
    distinct, counts = np.unique(np.array(values), return_counts=True)
    assert Measure.of(distinct, counts).unit == 1.0


def test_a_mostly_constant_column_has_the_unit_of_its_spread() -> None:
    measure = Measure.of(np.array([0.0, 10.0]), np.array([90, 10]))
    assert measure.centre == 0.0
    assert measure.unit == pytest.approx(np.sqrt(10.0))


def test_halves_are_about_equal_and_do_not_depend_on_chunks() -> None:
    every = half_of_rows(0, 10_000)
    assert 4_500 < every.sum() < 5_500
    assert (np.concatenate([half_of_rows(0, 777), half_of_rows(777, 10_000)]) == every).all()


def test_order_is_seen_where_it_matters_and_not_among_codes() -> None:
    rng = np.random.default_rng(1)
    age = rng.integers(18, 80, 20_000)
    by_age = (rng.random(20_000) < 0.1 + 0.01 * (age - 18)).astype(float)
    effect = rng.permutation(np.linspace(-1, 1, 62))
    by_code = (rng.random(20_000) < 0.5 + 0.4 * effect[age - 18]).astype(float)
    assert order_matters(targets_of(age, by_age))
    assert not order_matters(targets_of(age, by_code))
    assert not order_matters(targets_of(age, rng.random(20_000)))


def test_bins_are_better_for_an_amount_and_single_values_for_codes() -> None:
    rng = np.random.default_rng(2)
    seconds = rng.integers(0, 2_000, 20_000)
    smooth = np.sin(seconds / 300) + rng.normal(size=20_000)
    code_effect = rng.normal(size=2_000) * 2
    assert targets_of(seconds, smooth).bins_are_better()
    assert not targets_of(seconds, code_effect[seconds] + rng.normal(size=20_000)).bins_are_better()


def test_the_number_of_bins_follows_the_target() -> None:
    rng = np.random.default_rng(3)
    numbers = rng.random(20_000)
    step = (numbers > 0.5) + rng.normal(size=20_000)
    wave = np.sin(60 * numbers) + 0.3 * rng.normal(size=20_000)
    assert targets_of(numbers, step).best_n_bins(64) < targets_of(numbers, wave).best_n_bins(64) == 64
    assert targets_of(numbers, wave).best_n_bins(20) == 16
    assert targets_of(numbers, wave).best_n_bins(3) == 3


def test_targets_need_their_columns() -> None:
    assert ValueTargets.of(pl.DataFrame({"value": [1], "n": [2]}), np.array([1.0])) is None

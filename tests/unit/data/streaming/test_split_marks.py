"""Drawing parts block after block: exact shares of the table and of every stratum, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fielddep.config import SplitConfig
from fielddep.data.splits import wanted_rows
from fielddep.data.streaming import split_marks
from fielddep.data.streaming.split_marks import StrataDraw


def draw(strata: np.ndarray, config: SplitConfig, span: int) -> np.ndarray:
    sizes = np.bincount(strata[strata >= 0])
    drawing = StrataDraw(sizes, config)
    return np.concatenate([drawing.marks(start, strata[start : start + span]) for start in range(0, len(strata), span)])


@given(
    n_rows=st.integers(2, 400),
    n_strata=st.integers(1, 30),
    validation=st.floats(0, 0.45),
    test=st.floats(0, 0.45),
    seed=st.integers(0, 5),
)
def test_shares_are_exact(n_rows: int, n_strata: int, validation: float, test: float, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_marks, "BLOCK_ROWS", 16)
        config = SplitConfig(validation=validation, test=test, seed=seed)
        strata = np.random.default_rng(seed).integers(0, n_strata, n_rows)
        marks = draw(strata, config, 32)
        counts = np.bincount(marks, minlength=3)
        assert counts[2] == min(wanted_rows(test, n_rows), n_rows)
        assert counts[1] == min(wanted_rows(validation, n_rows), n_rows - counts[2])
        for stratum in range(n_strata):
            rows = marks[strata == stratum]
            assert abs((rows == 2).sum() - len(rows) * counts[2] / n_rows) <= 1
            assert abs((rows == 1).sum() - len(rows) * counts[1] / n_rows) <= 2
        assert draw(strata, config, 64).tolist() == marks.tolist()


def test_every_row_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_marks, "BLOCK_ROWS", 16)
    strata = np.zeros(64, dtype=np.int64)
    drawn = sum(draw(strata, SplitConfig(seed=seed, test=0.25), 32) == 2 for seed in range(800))
    assert np.abs(drawn - 200).max() < 5 * np.sqrt(800 * 0.25 * 0.75)


def test_rows_of_no_stratum_stay_out() -> None:
    strata = np.array([0, -1, 0, -1, 0, 0])
    marks = draw(strata, SplitConfig(validation=0.5, test=0.0), 6)
    assert marks[[1, 3]].tolist() == [0, 0]
    assert sorted(marks[[0, 2, 4, 5]].tolist()) == [0, 0, 1, 1]

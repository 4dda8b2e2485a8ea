"""Codes of values: dense, in order of first appearance, stable; and the ways back."""

from __future__ import annotations

import datetime as dt
import gc
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fielddep.encoding.coded import Array, Cells, MemoryCells, Sizes
from fielddep.encoding.interning import ColumnInterner, Dictionary, from_text, to_text
from fielddep.errors import SplitError, UserError
from fielddep.store.folder import FileCells
from tests.helpers import raises, states


def sizes(**values: int) -> Sizes:
    """Sizes with which a column is judged after every row."""
    return Sizes(chunk_rows=1, **values)


@given(st.lists(st.lists(st.none() | st.text(max_size=3), max_size=20), max_size=6))
def test_codes_are_dense_and_in_order_of_first_appearance(chunks: list[list[str | None]]) -> None:
    dictionary, known = Dictionary(), {}
    for chunk in chunks:
        codes = dictionary.codes(pl.Series(chunk, dtype=pl.String))
        for text in chunk:
            if text is not None:
                known.setdefault(text, len(known) + 1)
        assert codes.tolist() == [0 if text is None else known[text] for text in chunk]
        assert dictionary.n_values == len(known)
    assert dictionary.texts().to_list() == list(known)
    assert dictionary.texts(1).to_list() == list(known)[1:]


def test_the_numbering_outlives_the_columns_that_made_it() -> None:
    dictionary = Dictionary()
    for texts, expected in ((["b", "a"], [1, 2]), ([], []), (["c", "a", None, "b"], [3, 2, 0, 1])):
        assert dictionary.codes(pl.Series(texts, dtype=pl.String)).tolist() == expected
        gc.collect()
    assert dictionary.texts().to_list() == ["b", "a", "c"]


def test_dictionaries_do_not_know_each_other() -> None:
    first, second = Dictionary(), Dictionary()
    assert first.codes(pl.Series(["a", "b"])).tolist() == [1, 2]
    assert second.codes(pl.Series(["b", "a"])).tolist() == [1, 2]


VALUES = {
    "integers": pl.Series([1, None, 2**63 - 1, -5]),
    "large": pl.Series([2**64 - 1, 0], dtype=pl.UInt64),
    "floats": pl.Series([0.1, float("nan"), -0.0, 1e300, 5e-324, float("inf"), None, 1 / 3]),
    "single": pl.Series([0.1, 3e-45, 1 / 3], dtype=pl.Float32),
    "booleans": pl.Series([True, None, False]),
    "dates": pl.Series([dt.date(2020, 1, 1), None, dt.date(1, 1, 1)]),
    "nanoseconds": pl.Series([1, 2**62], dtype=pl.Int64).cast(pl.Datetime("ns")),
    "zoned": pl.Series([dt.datetime(2020, 1, 1, 3)]).dt.replace_time_zone("Europe/Paris"),
    "times": pl.Series([dt.time(3, 4, 5, 6)]),
    "durations": pl.Series([dt.timedelta(3, 4, 5)]),
    "decimals": pl.Series([Decimal("1.50"), None, Decimal("-3.25")]),
    "categories": pl.Series(["a", None, "b"], dtype=pl.Categorical),
    "texts": pl.Series(["", " a", None, "5.0"]),
    "nothing": pl.Series([None, None]),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_from_their_texts(name: str) -> None:
    values = VALUES[name]
    back = from_text(to_text(values), values.dtype)
    assert back.dtype == values.dtype
    assert back.equals(values)
    interner = ColumnInterner("x", values.dtype)
    codes = interner.take(values, 0)
    assert codes is not None
    assert interner.values().gather(codes).equals(values)


def test_enums_come_back_as_categories() -> None:
    values = pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"]))
    assert from_text(to_text(values), values.dtype).to_list() == ["a", "b"]


def test_a_measure_becomes_numbers_and_a_code_does_not() -> None:
    rng = np.random.default_rng(0)
    for name, values, expected in (
        ("price", pl.Series(rng.normal(size=40)).cast(pl.String), "numbers"),
        ("user_id", pl.Series(rng.choice(9999, 40, replace=False)).cast(pl.String), "codes"),
        ("word", pl.Series([f"w{i}" for i in range(40)]), "codes"),
    ):
        interner = ColumnInterner(name, values.dtype, sizes=sizes(max_distinct=10), number_policy="measure")
        first = interner.take(values[:20], 0)
        assert first is not None
        assert first.tolist() == list(range(1, 21))
        assert interner.mode == expected
        second = interner.take(values[20:], 20)
        assert second is not None
        assert second.dtype.kind == ("f" if expected == "numbers" else "u")
    never = ColumnInterner("price", pl.String(), sizes=sizes(max_distinct=10), number_policy="never")
    never.take(pl.Series(rng.normal(size=40)).cast(pl.String), 0)
    assert never.mode == "codes"


def test_numbers_are_judged_again_when_there_are_twice_as_many() -> None:
    interner = ColumnInterner("x", pl.Int64(), sizes=sizes(max_distinct=10), number_policy="measure")
    repeated = pl.Series(list(range(0, 1100, 100)) * 40)  # a few sparse values, often: codes
    interner.take(repeated, 0)
    assert interner.mode == "codes"
    interner.take(pl.Series(range(1000, 3000)), len(repeated))
    assert interner.mode == "numbers"


def test_times_become_microseconds() -> None:
    days = pl.Series([f"2024-01-{day:02d}" for day in range(1, 29)])
    interner = ColumnInterner("at", days.dtype, sizes=sizes(max_distinct=3), number_policy="times")
    interner.take(days[:10], 0)
    assert interner.mode == "numbers"
    numbers = interner.take(days[10:], 10)
    assert numbers is not None
    assert np.diff(numbers).tolist() == [86_400_000_000.0] * 17
    with raises(SplitError, "one format", "row 28"):
        interner.take(pl.Series(["1", "2"]), 28)


def test_an_interner_resumes_from_its_state() -> None:
    values = pl.Series(np.random.default_rng(0).normal(size=90))
    options = {"sizes": sizes(max_distinct=50, judged_rows=30), "number_policy": "measure", "may_skip": True}
    straight = ColumnInterner("x", values.dtype, **options)  # type: ignore[arg-type]
    expected = [straight.take(values[i : i + 10], i) for i in range(0, 90, 10)]
    for stop in range(10, 90, 10):
        first = ColumnInterner("x", values.dtype, **options)  # type: ignore[arg-type]
        for i in range(0, stop, 10):
            first.take(values[i : i + 10], i)
        state, texts = first.state(), first.dictionary.texts()
        second = ColumnInterner("x", values.dtype, **options, state=state, texts=texts)  # type: ignore[arg-type]
        for i in range(stop, 90, 10):
            found = second.take(values[i : i + 10], i)
            assert found is not None
            assert found.tolist() == expected[i // 10].tolist()  # type: ignore[union-attr]
        assert second.state() == straight.state()


# --- cells ----------------------------------------------------------------------------------------------------


def joined(cells: Cells, column: int, start: int, stop: int) -> list[float]:
    return [value for chunk in cells.read(column, start, stop) for value in chunk.tolist()]


@pytest.mark.parametrize("place", ["memory", "file"])
def test_cells_give_back_what_they_took(tmp_path: Path, place: str) -> None:
    file = FileCells(tmp_path / "codes")
    cells: Cells = MemoryCells() if place == "memory" else file
    rng = np.random.default_rng(0)
    small, large, numbers = rng.integers(0, 200, 50), rng.integers(0, 2**20, 50), rng.normal(size=50)
    for start, stop in ((0, 7), (7, 8), (8, 50)):
        gone: Array | None = None if start == 8 else small[start:stop].astype(np.uint32)
        cells.append([large[start:stop].astype(np.uint32), gone, numbers[start:stop]])
    assert cells.n_rows == 50
    for start, stop in ((0, 50), (3, 8), (7, 9), (49, 50), (5, 5)):
        assert joined(cells, 0, start, stop) == large[start:stop].tolist()
        assert joined(cells, 2, start, stop) == numbers[start:stop].tolist()
    assert joined(cells, 1, 2, 8) == small[2:8].tolist()
    assert {chunk.dtype.str for chunk in cells.read(1, 0, 8)} == {"|u1"}
    if place == "file":
        file.flush()
        assert file.n_bytes == (tmp_path / "codes").stat().st_size == 50 * (4 + 8) + 8 * 1
        assert [types for _, types in file.chunks] == [["<u4", "|u1", "<f8"]] * 2 + [["<u4", "-", "<f8"]]
    file.close()


def test_cells_in_a_file_resume_after_the_last_checkpoint(tmp_path: Path) -> None:
    cells = FileCells(tmp_path / "codes")
    cells.append([np.arange(5, dtype=np.uint32)])
    chunks = [list(chunk) for chunk in cells.chunks]
    cells.append([np.arange(300, dtype=np.uint32)])
    cells.flush()
    cells.close()
    again = FileCells(tmp_path / "codes", chunks)
    again.append([np.array([7, 8], dtype=np.uint32)])
    assert joined(again, 0, 0, 7) == [0, 1, 2, 3, 4, 7, 8]
    again.flush()
    again.close()
    assert (tmp_path / "codes").stat().st_size == 7
    (tmp_path / "codes").write_bytes(b"ab")
    with raises(UserError, "cut off"):
        FileCells(tmp_path / "codes", chunks)


def test_very_many_values_give_a_warning_at_every_doubling(caplog: pytest.LogCaptureFixture) -> None:
    many = sizes(many_distinct=100)
    column, n_rows = ColumnInterner("word", pl.String(), sizes=many), 0

    def take(n_new: int) -> list[str]:
        nonlocal n_rows
        caplog.clear()
        column.take(pl.Series([f"w{n_rows + i}" for i in range(n_new)]), n_rows)
        n_rows += n_new
        return [record.getMessage() for record in caplog.records]

    assert take(99) == []
    (warning,) = take(1)
    assert states(warning, "'word'", "100 different values", "100 rows", "data.exclude")
    assert take(99) == []
    assert len(take(250)) == 1  # 449 values: 200 and 400 at once
    state = column.state()
    again = ColumnInterner("word", pl.String(), sizes=many, state=state, texts=column.dictionary.texts())
    column = again
    assert take(300) == []
    assert len(take(100)) == 1

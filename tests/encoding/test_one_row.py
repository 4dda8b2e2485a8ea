"""A few rows, value by value: the same texts and numbers as whole columns give."""

from __future__ import annotations

import datetime
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.encoding.one_row import NeedsColumnsError, TextIndex, canonical_values, missing_texts, number_values
from fielddep.encoding.values import NUMBER_MISSING, as_number, canonical
from fielddep.errors import SchemaError
from tests.helpers import raises

MISSING = ("", "?", "-999", "5.0", "True")

texts = st.one_of(
    st.text(max_size=6),
    st.from_regex(r"\A-?[0-9]{1,3}\.0{1,3}\Z"),
    st.from_regex(r"\A[0-9]{16,18}(\.0{1,3})?\Z"),
    st.from_regex(r"\A2024-0[12]-30[ T]0[01]:00(:0[01](\.[05]{1,3})?)?(Z|[+-]01:?30)?[x\n]?\Z"),
    st.sampled_from(["", "?", "TRUE", "true", "False", "-999", "-999.0", "5", "-0.0", "10.0.0", "5.0\n", " 5.0", "NA"]),
)
whole = st.integers(-(2**62), 2**62)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), texts), min_size=1, max_size=5))
def test_texts_as_in_whole_columns(values):
    column = pl.Series("a", values, dtype=pl.String)
    assert canonical_values(column.to_list(), missing_texts(MISSING)) == canonical(column, MISSING).to_list()


@settings(deadline=None)
@given(
    st.one_of(
        st.lists(st.one_of(st.none(), whole), min_size=1, max_size=5).map(lambda v: pl.Series(v, dtype=pl.Int64)),
        st.lists(st.one_of(st.none(), st.booleans()), min_size=1, max_size=5).map(
            lambda v: pl.Series(v, dtype=pl.Boolean)
        ),
        st.lists(st.one_of(st.none(), whole.map(float)), min_size=1, max_size=5).map(
            lambda v: pl.Series(v, dtype=pl.Float64)
        ),
    )
)
def test_typed_values_as_in_whole_columns(column):
    assert canonical_values(column.to_list(), missing_texts(MISSING)) == canonical(column, MISSING).to_list()


@pytest.mark.parametrize("value", [0.5, math.nan, 1e300, datetime.date(2024, 1, 31), b"x", [1]])
def test_what_is_not_simple_is_left_to_the_columns(value):
    with pytest.raises(NeedsColumnsError):
        canonical_values([value], missing_texts(MISSING))


number_texts = st.one_of(
    st.floats(-1e6, 1e6).map(repr),
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from(["", " 5 ", "+.5", "5.", "1e3", "-2E-5", "NaN", "null", "?", "-999", "x", "1_000", "0x1", "inf"]),
)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), number_texts), min_size=1, max_size=4))
def test_numbers_of_text_as_in_whole_columns(values):
    column = pl.Series("a", values, dtype=pl.String)
    try:
        found = number_values(values, missing_texts((*MISSING, *NUMBER_MISSING)))
    except NeedsColumnsError:
        return
    try:
        expected = as_number(column, MISSING).to_numpy()
    except SchemaError:
        pytest.fail(f"{values} was taken for numbers")
    np.testing.assert_array_equal(found, expected)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9, allow_subnormal=False)), min_size=1, max_size=4))
def test_typed_numbers_as_in_whole_columns(values):
    try:
        found = number_values(values, missing_texts((*MISSING, "0.5", *NUMBER_MISSING)))
    except NeedsColumnsError:
        return
    expected = as_number(pl.Series("a", values, dtype=pl.Float64), (*MISSING, "0.5")).to_numpy()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 400, "9" * 300 + "e99"])
def test_numbers_too_large_are_left_to_the_columns(text):
    """Which refuse them as infinite."""
    with pytest.raises(NeedsColumnsError):
        number_values([text], missing_texts(MISSING))
    with raises(SchemaError, "finite numbers"):
        as_number(pl.Series("a", [text]))
    assert math.isnan(number_values([text], missing_texts([text]))[0])


@pytest.mark.parametrize(("text", "number"), [("7", 7.0), ("0.25", 0.25), (" 1e3 ", 1000.0), ("-999", np.nan)])
def test_ordinary_numbers_are_simple(text, number):
    np.testing.assert_array_equal(number_values([text], missing_texts(MISSING)), [number])


def test_positions_of_texts():
    values = pl.Series([f"v{i}" for i in range(500)] + ["", "naïve"])
    index = TextIndex(values)
    assert [index.find(value) for value in values] == list(range(502))
    assert index.find("v500") is None
    assert TextIndex(pl.Series([], dtype=pl.String)).find("x") is None


def test_equal_hashes_are_told_apart(monkeypatch):
    monkeypatch.setattr("fielddep.encoding.one_row.hash", lambda text: len(text), raising=False)
    index = TextIndex(pl.Series(["aa", "b", "cc", "dd"]))
    assert [index.find(text) for text in ("aa", "b", "cc", "dd", "ee")] == [0, 1, 2, 3, None]

"""Numbers, durations, sizes and names as text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from fielddep.wording import (
    amount,
    compact,
    count,
    did_you_mean,
    duration,
    format_bytes,
    listing,
    percent,
    shorten,
    value_label,
)


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (compact, 0, "0"),
        (compact, 999, "999"),
        (compact, 999.6, "1k"),
        (compact, 9_940, "9.9k"),
        (compact, 9_960, "10k"),
        (compact, 437_400, "437k"),
        (compact, 999_499, "999k"),
        (compact, 999_500, "1M"),
        (compact, 850_000_000, "850M"),
        (compact, 2_500_000_000_000, "2,500B"),
        (duration, 0, "0 ms"),
        (duration, 0.00994, "9.9 ms"),
        (duration, 0.00996, "10 ms"),
        (duration, 0.9994, "999 ms"),
        (duration, 0.9996, "1 s"),
        (duration, 9.96, "10 s"),
        (duration, 59.4, "59 s"),
        (duration, 59.6, "1 min 0 s"),
        (duration, 3599.4, "59 min 59 s"),
        (duration, 3599.6, "1 h 0 min"),
        (duration, 18557, "5 h 9 min"),
        (amount, 0.0, "0"),
        (amount, -0.25, "-0.25"),
        (amount, 99.996, "100"),
        (amount, 1234567.8, "1,234,568"),
        (amount, -1_700_000_000.0, "-1,700,000,000"),
        (amount, float("nan"), "nan"),
        (amount, float("-inf"), "-inf"),
        (partial(amount, n_digits=2), 9.94, "9.9"),
        (partial(amount, n_digits=2), 9.96, "10"),
        (percent, 0.0, "0 %"),
        (percent, 1.0, "100 %"),
        (percent, 0.5, "50 %"),
        (percent, 0.994, "99.4 %"),
        (percent, 0.996, "99.6 %"),
        (percent, 0.00004, "0.004 %"),
        (format_bytes, 999, "999 bytes"),
        (format_bytes, 1_234_500, "1.2 MB"),
        (partial(count, noun="row"), 0, "0 rows"),
        (partial(count, noun="row"), 1, "1 row"),
    ],
)
def test_numbers_as_text(write: Callable[[float], str], value: float, text: str) -> None:
    assert write(value) == text


@pytest.mark.parametrize("n_characters", [8, 13, 20])
def test_no_label_is_longer_than_allowed(n_characters: int) -> None:
    for name in ("a", "field", "a very long name of a field"):
        for value in ("", "x", "a value", "a\nvery  long value indeed"):
            label = value_label(name, value, n_characters)
            assert len(label) <= n_characters
            assert label.startswith(name[0])
            assert label.endswith(f": {value[-1:]}" if len(value) < 2 else value[-1])
    assert shorten("abcdefghij", 5) == "ab…ij"


def test_what_fits_is_not_shortened() -> None:
    assert value_label("hour", "19", 8) == "hour: 19"
    assert shorten("two\nlines", 9) == "two lines"


@pytest.mark.parametrize("given", ["colour", "Color", "COLOUR_", "colours"])
def test_the_nearest_name_is_offered(given: str) -> None:
    assert "'colour'" in did_you_mean(given, ["size", "colour", "price"])
    assert "'size'" not in did_you_mean(given, ["size", "colour", "price"])


def test_all_names_are_listed_if_none_is_near() -> None:
    advice = did_you_mean("zzz", (f"name_{n}" for n in range(40)), what="fields")
    assert "fields" in advice and "'name_0'" in advice and "'name_39'" not in advice and "10 more" in advice
    assert listing([1, 2]) == "1, 2"

"""Fields of the synthetic click log: names, sizes and texts like those of the Avazu table, and what is planted.

The sizes are the numbers of distinct values in Avazu's forty million rows. A smaller log cuts the largest fields to
one common size and leaves the others as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from fielddep.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ClickField:
    """A field of the click log.

    Attributes:
        name: its column.
        n_values: distinct values in the real table.
        text: how a value is written: eight hexadecimal digits, a whole number, or a date with an hour.
        first: smallest of the whole numbers.
        step: distance from one whole number to the next.
    """

    name: str
    n_values: int
    text: Literal["hash", "number", "hour"] = "hash"
    first: int = 0
    step: int = 1


CLICK_FIELDS = (
    ClickField(name="hour", n_values=240, text="hour"),
    ClickField(name="C1", n_values=7, text="number", first=1001),
    ClickField(name="banner_pos", n_values=7, text="number"),
    ClickField(name="site_id", n_values=4_737),
    ClickField(name="site_domain", n_values=7_745),
    ClickField(name="site_category", n_values=26),
    ClickField(name="app_id", n_values=8_552),
    ClickField(name="app_domain", n_values=559),
    ClickField(name="app_category", n_values=36),
    ClickField(name="device_id", n_values=2_686_408),
    ClickField(name="device_ip", n_values=6_729_486),
    ClickField(name="device_model", n_values=8_251),
    ClickField(name="device_type", n_values=5, text="number"),
    ClickField(name="device_conn_type", n_values=4, text="number"),
    ClickField(name="C14", n_values=2_626, text="number", first=10_375, step=9),
    ClickField(name="C15", n_values=8, text="number", first=120, step=110),
    ClickField(name="C16", n_values=9, text="number", first=20, step=115),
    ClickField(name="C17", n_values=435, text="number", first=1_112, step=4),
    ClickField(name="C18", n_values=4, text="number"),
    ClickField(name="C19", n_values=68, text="number", first=33, step=16),
    ClickField(name="C20", n_values=172, text="number", first=100_000),
    ClickField(name="C21", n_values=60, text="number", first=1, step=4),
)

CLICK_DEPENDENCIES = (
    ("site_id", "site_domain", 0.10),
    ("site_domain", "site_category", 0.10),
    ("app_id", "app_domain", 0.10),
    ("app_id", "app_category", 0.05),
    ("device_ip", "device_model", 0.20),
    ("device_model", "device_type", 0.05),
    ("C14", "C17", 0.10),
    ("C15", "C16", 0.05),
    ("C17", "C18", 0.10),
)
"""Planted (source, dependent, noise): the dependent is a function of its source, but in a share `noise` of the rows
it is drawn like an independent field. A source comes before its dependents."""

CLICK_INTERACTIONS = (
    ("site_id", "C14"),
    ("app_id", "banner_pos"),
    ("device_model", "C21"),
    ("hour", "site_category"),
    ("C20", "app_category"),
    ("device_conn_type", "C17"),
    ("device_id", "C19"),
)
"""Pairs of fields whose latent factors are multiplied in the score of a click."""


def field_sizes(n_categories: int) -> tuple[int, ...]:
    """Number of values of each field, `n_categories` in total, the largest fields cut to a common size.

    Raises:
        ConfigError: there would be fewer than two values per field, or more than in the real table.
    """
    real = [field.n_values for field in CLICK_FIELDS]
    if not 2 * len(real) <= n_categories <= sum(real):
        raise ConfigError(f"n_categories must be from {2 * len(real)} to {sum(real)}; given {n_categories}")
    sizes = list(real)
    left = n_categories
    # From the smallest up, each takes at most an even share of what is left: only the largest are cut.
    for n_waiting, i in zip(range(len(real), 0, -1), np.argsort(real, kind="stable"), strict=True):
        sizes[i] = min(real[i], left // n_waiting)
        left -= sizes[i]
    return tuple(sizes)


def value_texts(field: ClickField, n_values: int) -> pl.Series:
    """Text of each value of a field, the most frequent value first; all differ."""
    if field.text == "hash":
        return _hashes(field, n_values)
    if field.text == "hour":
        return pl.Series(field.name, [f"1410{21 + rank % 10:02}{rank // 10:02}" for rank in range(n_values)])
    numbers = range(field.first, field.first + n_values * field.step, field.step)
    return pl.Series(field.name, [str(number) for number in numbers])


def _hashes(field: ClickField, n_values: int) -> pl.Series:
    """Eight hexadecimal digits that look random; no two are equal."""
    first = CLICK_FIELDS.index(field) * 0x01F3_5A77
    return hash_texts(np.arange(first, first + n_values, dtype=np.uint32)).alias(field.name)


def hash_texts(numbers: np.ndarray) -> pl.Series:
    """Eight hexadecimal digits for each 32-bit number: every step is one-to-one, so different numbers differ."""
    mixed = numbers * np.uint32(0x9E37_79B1)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x2C1B_3C6D)
    mixed ^= mixed >> np.uint32(13)
    digits = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)
    text = digits[mixed.astype(">u4").view(np.uint8)]
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 8
    return pl.Series(pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(text)))

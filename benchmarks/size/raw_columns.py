"""Columns of generated raw files like Criteo's and KDD2012's: sizes, skew and missing cells close to the real ones.

Sizes and shares of empty cells are approximate figures of the published files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fielddep.datasets.criteo import CATEGORIES, COUNTS

_CRITEO_SIZES = (
    *(1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)
_CRITEO_MISSING = {"C6": 0.12, "C19": 0.44, "C20": 0.44, "C22": 0.76, "C25": 0.44, "C26": 0.44}
_CRITEO_SCALES = (1.5, 2.5, 2.0, 1.2, 3.0, 2.0, 1.5, 1.2, 2.0, 0.6, 1.0, 0.8, 1.2)
"""Spread of each count: the standard deviation of its logarithm."""
_COUNTS_MISSING = {"I1": 0.45, "I3": 0.21, "I4": 0.22, "I6": 0.22, "I10": 0.45, "I12": 0.77, "I13": 0.22}


@dataclass(frozen=True, kw_only=True)
class RawColumn:
    """A column of a generated raw file.

    Attributes:
        name: its name.
        n_values: number of different values.
        text: how a value is written: a whole number from `first` on, eight hexadecimal digits, or the 64-bit number
            that stands for an address.
        first: smallest whole number.
        missing: share of empty cells.
        effect: how much its values move the score of a click.
    """

    name: str
    n_values: int
    text: Literal["number", "hash", "address"] = "number"
    first: int = 0
    missing: float = 0.0
    effect: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CountColumn:
    """A column of counts.

    Attributes:
        name: its name.
        scale: standard deviation of the logarithm.
        first: smallest count.
        missing: share of empty cells.
    """

    name: str
    scale: float
    first: int = 0
    missing: float = 0.0


CRITEO_COUNTS = tuple(
    CountColumn(name=name, scale=scale, first=-2 if name == "I2" else 0, missing=_COUNTS_MISSING.get(name, 0.0))
    for name, scale in zip(COUNTS, _CRITEO_SCALES, strict=True)
)
CRITEO_CATEGORIES = tuple(
    RawColumn(
        name=name,
        n_values=size,
        text="hash",
        missing=_CRITEO_MISSING.get(name, 0.03 if size > 1_000_000 else 0.0),
        effect=0.6 if name in ("C1", "C2", "C7", "C14", "C17") else 0.0,
    )
    for name, size in zip(CATEGORIES, _CRITEO_SIZES, strict=True)
)
KDD2012_COLUMNS = (
    RawColumn(name="display_url", n_values=26_273, text="address", effect=0.4),
    RawColumn(name="ad_id", n_values=641_707, first=1_000_000, effect=0.5),
    RawColumn(name="advertiser_id", n_values=14_847, effect=0.5),
    RawColumn(name="depth", n_values=3, first=1, effect=0.3),
    RawColumn(name="position", n_values=3, first=1, effect=0.8),
    RawColumn(name="query_id", n_values=24_122_076),
    RawColumn(name="keyword_id", n_values=1_188_089, effect=0.4),
    RawColumn(name="title_id", n_values=3_735_796),
    RawColumn(name="description_id", n_values=2_934_101),
    RawColumn(name="user_id", n_values=22_023_547),
)

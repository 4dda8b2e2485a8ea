"""Criteo: will a display ad be clicked? 46 million rows of seven days.

The file has no header. 13 columns are counts: above 2 a count x becomes floor(ln(x)^2), else x - 2 (the encoding
"log2"); 26 columns are hashed categories. An empty cell is a value of its own, the missing id of its field. Values seen
fewer than 35 times in their field become one.
"""

from __future__ import annotations

import polars as pl

from fielddep.datasets.raw import CellRule, RawFile, RawFiles, derive_rows
from fielddep.datasets.recipe import Facts, StreamRecipe
from fielddep.tables.delimited import without_header
from fielddep.tables.row_stream import RowStream, delimited_stream

COUNTS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))
FIELDS = (*COUNTS, *CATEGORIES)
TARGET = "label"
FILE = "train.txt"
RULES = (
    CellRule(columns=(TARGET,), pattern="[01]", expected="0 or 1"),
    CellRule(columns=COUNTS, pattern=r"-?\d+|", expected="a whole number or nothing"),
)


def open_train(files: RawFiles) -> RowStream:
    """Rows of the training file."""
    file = without_header(files[FILE].path, (TARGET, *FIELDS), delimiter="\t")
    columns = {name: pl.col(name) for name in (TARGET, *FIELDS)}
    return derive_rows(delimited_stream([file]), columns, RULES, has_header=False)


RECIPE = StreamRecipe(
    facts=Facts(
        name="criteo",
        title="Criteo display advertising challenge: clicks on display ads",
        task="binary",
        target=TARGET,
        fields=FIELDS,
        rows=45_840_617,
        parts=(36_672_493, 4_584_061, 4_584_063),
        positives=11_745_438,
        categories=395_894,
        page="https://www.kaggle.com/c/criteo-display-ad-challenge",
        terms="Criteo's terms, to be accepted at download; research, no commercial use, no redistribution",
    ),
    versions=((RawFile(name=FILE, n_bytes=11_100_000_000, other_names=("train.txt.gz",)),),),
    settings={
        "data.min_count": 35,
        "data.kinds": {**dict.fromkeys(COUNTS, "numerical"), **dict.fromkeys(CATEGORIES, "categorical")},
        "data.numeric": dict.fromkeys(COUNTS, "log2"),
    },
    advice=f"unpack {FILE} from dac.tar.gz",
    open=open_train,
)

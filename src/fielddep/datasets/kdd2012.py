"""KDD Cup 2012, track 2: will a user of a search engine click an ad? 150 million rows.

The file has no header. The label is whether there was a click at all; the number of impressions is a field like any
other. Values seen fewer than 10 times in their field become one.
"""

from __future__ import annotations

import polars as pl

from fielddep.datasets.raw import CellRule, RawFile, RawFiles, derive_rows
from fielddep.datasets.recipe import Facts, StreamRecipe
from fielddep.tables.delimited import without_header
from fielddep.tables.row_stream import RowStream, delimited_stream

CLICKS = "click"
"""Raw column: how often the ad was clicked."""
FIELDS = (
    *("impression", "display_url", "ad_id", "advertiser_id", "depth", "position"),
    *("query_id", "keyword_id", "title_id", "description_id", "user_id"),
)
TARGET = "clicked"
FILE = "training.txt"
RULES = (CellRule(columns=(CLICKS,), pattern=r"\d+", expected="a number of clicks"),)


def open_training(files: RawFiles) -> RowStream:
    """Rows of the training file with the label in place of the clicks."""
    file = without_header(files[FILE].path, (CLICKS, *FIELDS), delimiter="\t")
    clicked = pl.col(CLICKS).str.contains("[1-9]").cast(pl.Int8)
    columns = {TARGET: clicked, **{name: pl.col(name) for name in FIELDS}}
    return derive_rows(delimited_stream([file]), columns, RULES, has_header=False)


RECIPE = StreamRecipe(
    facts=Facts(
        name="kdd2012",
        title="KDD Cup 2012, track 2: clicks on ads of a search engine",
        task="binary",
        target=TARGET,
        fields=FIELDS,
        rows=149_639_105,
        parts=(95_764_025, 23_941_007, 29_934_073),
        positives=6_658_036,
        categories=2_047_519,
        page="https://www.kaggle.com/c/kddcup2012-track2/data",
        terms="rules of the KDD Cup 2012, to be accepted at download; no redistribution",
        note="8:2 for training and test, then a fifth of the training rows for validation",
    ),
    versions=((RawFile(name=FILE, n_bytes=10_000_000_000, other_names=(f"{FILE}.gz",)),),),
    settings={"data.min_count": 10},
    advice=f"unpack {FILE} from the archive of track 2",
    open=open_training,
)

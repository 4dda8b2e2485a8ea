"""Avazu: will a mobile ad be clicked? 40 million rows of ten days.

`id` numbers the rows and is dropped; `hour` (year, month, day and hour) stays one value. Values seen fewer than 4 times
in their field become one.
"""

from __future__ import annotations

import polars as pl

from fielddep.datasets.raw import CellRule, RawFile, RawFiles, derive_rows
from fielddep.datasets.recipe import Facts, StreamRecipe
from fielddep.errors import TableError
from fielddep.tables.delimited import open_delimited
from fielddep.tables.row_stream import RowStream, delimited_stream

FIELDS = (
    *("hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category"),
    *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
    *("C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21"),
)
TARGET = "click"
COLUMNS = ("id", TARGET, *FIELDS)
FILE = "train"
RULES = (CellRule(columns=(TARGET,), pattern="[01]", expected="0 or 1"),)


def open_train(files: RawFiles) -> RowStream:
    """Rows of the training file without their id.

    Raises:
        TableError: the header is not that of the published file.
    """
    file = open_delimited(files[FILE].path, delimiter=",")
    if file.names != COLUMNS:
        raise TableError(
            f"{file.path}, line 1: expected the column names {','.join(COLUMNS)}, found {','.join(file.names)[:200]}. "
            "Is it the training file of Avazu?"
        )
    columns = {name: pl.col(name) for name in COLUMNS[1:]}
    return derive_rows(delimited_stream([file]), columns, RULES)


RECIPE = StreamRecipe(
    facts=Facts(
        name="avazu",
        title="Avazu: clicks on mobile ads",
        task="binary",
        target=TARGET,
        fields=FIELDS,
        rows=40_428_967,
        parts=(32_343_173, 4_042_896, 4_042_898),
        positives=6_865_066,
        categories=2_018_012,
        page="https://www.kaggle.com/c/avazu-ctr-prediction/data",
        terms="rules of the Kaggle competition, to be accepted at download; no redistribution",
    ),
    versions=((RawFile(name=FILE, n_bytes=6_300_000_000, other_names=("train.gz", "train.csv")),),),
    settings={"data.min_count": 4},
    advice="unpack the zip archive of the competition; train.gz in it can stay packed",
    open=open_train,
)

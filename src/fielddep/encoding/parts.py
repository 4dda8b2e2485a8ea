"""Parts: how often every value occurs in each of them, and what they lack."""

from __future__ import annotations

import numpy as np
import polars as pl

from fielddep.encoding.coded import CodedTable
from fielddep.encoding.ordering import Numbers
from fielddep.encoding.split import PART_NAMES, ReadParts
from fielddep.encoding.target import Target
from fielddep.encoding.values import canonical


def count_parts(table: CodedTable, name: str, parts: ReadParts) -> Numbers:
    """Rows of each part and code of a column, shape (3, codes)."""
    counts = np.zeros((len(PART_NAMES), len(table.columns[name].values)), dtype=np.int64)
    for start, stop in table.chunks():
        both = parts(start, stop) * np.int64(counts.shape[1]) + table.codes(name, start, stop)
        counts += np.bincount(both, minlength=counts.size).reshape(counts.shape)
    return counts


def class_warnings(table: CodedTable, target: Target, parts: ReadParts) -> tuple[str, ...]:
    """Warnings about classes that do not occur in a part; an empty part needs no warning."""
    if target.task == "regression":
        return ()
    counts = count_parts(table, target.name, parts)
    labels = canonical(table.columns[target.name].values)
    rows = pl.DataFrame(dict(zip(PART_NAMES, counts, strict=True))).with_columns(label=labels).drop_nulls()
    by_label = rows.group_by("label").sum().sort("label")
    absent = {name: by_label.filter(pl.col(name) == 0)["label"].to_list() for name in PART_NAMES if rows[name].sum()}
    return tuple(
        f"the {name} rows hold no row of class {', '.join(map(repr, classes[:5]))}{', ...' * (len(classes) > 5)} of "
        f"target {target.name!r}"
        for name, classes in absent.items()
        if classes
    )

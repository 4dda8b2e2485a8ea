"""The fields of a run and what is odd about them: the second part of a report.

Everything is taken from the encoder and from encoded rows, so it is the same for a table and for a store.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.fieldcoder import FieldCoder
from fielddep.data.leaks import determines, most_frequent_share, orders
from fielddep.data.numeric import NUMBER_ID, QuantileBins, ScaledNumbers
from fielddep.data.target import Target
from fielddep.data.vocabulary import FIRST_ID, MISSING_ID, RARE_ID, Vocabulary
from fielddep.explain.report import DataFacts, FieldFacts

N_FREQUENT = 3
MANY_MISSING, MANY_UNKNOWN, MANY_RARE = 0.5, 0.05, 0.2
"""Shares of rows from which on they are worth a warning."""
FEW_ROWS_A_VALUE = 2
"""Rows a value on average below which there is little to learn."""

_KINDS = {"scale": "number", "quantile": "number, in bins", "log2": "count, in bins"}


def data_facts(
    encoder: TableEncoder,
    measured: EncodedTable,
    *,
    rows: str,
    leaks: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> DataFacts:
    """Facts and warnings of every field.

    Args:
        encoder: what was learned of the fields from training rows.
        measured: rows that the model is measured on, or a sample of them.
        rows: which rows these are, in words.
        leaks: what `leaking_fields` found in training rows.
        warnings: what is odd about the table as a whole.
    """
    facts = [_field_facts(coder, measured.ids_RF.numpy()[:, f]) for f, coder in enumerate(encoder.coders)]
    told = [
        (fact.name, text)
        for coder, fact in zip(encoder.coders, facts, strict=True)
        for text in _warnings(coder, fact, rows)
    ]
    return DataFacts(
        fields=tuple(facts),
        left_out=encoder.schema.left_out,
        leaks=tuple(leaks),
        warnings=(*(("", text) for text in warnings), *told),
    )


def leaking_fields(encoder: TableEncoder, rows: EncodedTable) -> list[str]:
    """Fields that alone determine the target of these rows, too often for chance."""
    target = encoder.schema.target
    assert target is not None and rows.target_R is not None
    aims = pl.Series("target", rows.target_R.double().numpy())
    if not len(aims):
        return []
    share = most_frequent_share(aims)
    names = encoder.schema.field_names
    return [name for f, name in enumerate(names) if _leaks(encoder.coders[f], _groups(rows, f, aims), target, share)]


def _groups(rows: EncodedTable, position: int, aims: pl.Series) -> pl.DataFrame:
    """One row a known value: value (its id, or the number itself), n, and range of the target."""
    ids_R = rows.ids_RF.numpy()[:, position]
    if position in rows.layout.numerical:
        known_R = ids_R == NUMBER_ID
        values_R = rows.numbers_RN.numpy()[:, rows.layout.numerical.index(position)]
    else:
        known_R, values_R = ids_R >= FIRST_ID, ids_R
    frame = pl.DataFrame({"value": values_R, "target": aims}).filter(pl.Series(known_R))
    return frame.group_by("value").agg(n=pl.len(), low=pl.col("target").min(), high=pl.col("target").max())


def _leaks(coder: FieldCoder, groups: pl.DataFrame, target: Target, most_frequent: float) -> bool:
    if determines(groups, most_frequent):
        return True
    if isinstance(coder.coding, Vocabulary):
        return False
    regression = target.task == "regression"
    if orders(groups, regression=regression):
        return True
    # A threshold may fall into a bin, which then holds both classes; one such bin a threshold is no excuse.
    pure = groups.filter(pl.col("low") == pl.col("high"))
    n_mixed = len(groups) - len(pure)
    return not regression and 0 < n_mixed < len(target.classes) and determines(pure, most_frequent)


def _field_facts(coder: FieldCoder, measured_R: np.ndarray) -> FieldFacts:
    coding, total = coder.coding, max(int(coder.counts.sum()), 1)
    is_vocabulary = isinstance(coding, Vocabulary)
    shares = coder.counts / total
    labels = coder.labels()[FIRST_ID : FIRST_ID + N_FREQUENT].to_list() if is_vocabulary else []
    return FieldFacts(
        name=coder.field.name,
        kind=_KINDS.get(coder.field.numeric or "", "category"),
        n_values=None if isinstance(coding, ScaledNumbers) else len(coder.counts) - FIRST_ID,
        missing=float(shares[MISSING_ID]),
        rare=float(shares[RARE_ID]) if is_vocabulary else 0.0,
        unknown=float((measured_R == RARE_ID).mean()) if is_vocabulary and len(measured_R) else 0.0,
        frequent=tuple((label, float(shares[FIRST_ID + at])) for at, label in enumerate(labels)),
        example=_example(coder),
    )


def _example(coder: FieldCoder) -> str | None:
    """A value that a row may hold."""
    coding = coder.coding
    if isinstance(coding, ScaledNumbers):
        return f"{coding.mean:.6g}"
    if isinstance(coding, QuantileBins):
        return f"{coding.edges[len(coding.edges) // 2]:.6g}" if len(coding.edges) else None
    if coder.field.numeric == "log2":  # the vocabulary holds bins
        return "1"
    return coding.values[0] if len(coding.values) else None


def _warnings(coder: FieldCoder, fact: FieldFacts, rows: str) -> list[str]:
    found = []
    if fact.missing > MANY_MISSING:
        found.append(f"{100 * fact.missing:.0f} % of the training rows have no value")
    if fact.rare > MANY_RARE:
        found.append(f"{100 * fact.rare:.0f} % of the training rows hold a value too rare to be learned on its own")
    if fact.unknown > max(MANY_UNKNOWN, 2 * fact.rare):
        found.append(f"{100 * fact.unknown:.0f} % of the {rows} hold a value that training did not see, or too rarely")
    n_known = int(coder.counts[FIRST_ID:].sum())
    if fact.kind == "category" and fact.n_values and n_known < FEW_ROWS_A_VALUE * fact.n_values:
        found.append(f"{fact.n_values:,} different values in {n_known:,} rows leave little to learn of each")
    return found

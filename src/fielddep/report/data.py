"""Facts about the training and about the fields, with warnings: the first two parts of a report.

They are taken from the encoder and from encoded rows, so a table and its store have the same facts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.run import REQUEST, Run
from fielddep.config.settings import Config
from fielddep.encoding.dates import time_text
from fielddep.encoding.describe import determines, most_frequent_share, orders
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldEncoder, list_kind
from fielddep.encoding.numbers import NUMBER_ID, QuantileBins, ScaledNumbers
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.encoding.unknown import best_ids
from fielddep.encoding.vocabulary import FIRST_ID, MISSING_ID, RARE_ID, Vocabulary
from fielddep.explain.rows import target_of
from fielddep.report.facts import DataFacts, FieldFacts, Setting, TrainingFacts

N_FREQUENT = 3
MANY_MISSING, MANY_UNKNOWN, MANY_RARE = 0.5, 0.05, 0.2
"""Shares of rows that are worth a warning."""
FEW_ROWS_PER_VALUE = 2
"""With fewer rows per value on average, there is little to learn."""

_KINDS = {
    "scale": "number",
    "quantile": "number, in bins",
    "log2": "count, in bins",
    "list": "list of values",
    "text": "words of a text",
}


def data_facts(
    encoder: Encoder,
    measured: EncodedRows,
    *,
    rows: str,
    leaks: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> DataFacts:
    """Facts and warnings about every field, and about the table.

    Args:
        encoder: has the counts of the training rows.
        measured: a sample of the rows on which the model is measured.
        rows: which rows these are, in words.
        leaks: from `leaking_fields` of training rows.
        warnings: about the table.
    """
    n_rows = _n_training_rows(encoder)
    facts = [
        _field_facts(field_encoder, best_ids(measured, f), n_rows)
        for f, field_encoder in enumerate(encoder.field_encoders)
    ]
    found = [
        (fact.name, text)
        for field_encoder, fact in zip(encoder.field_encoders, facts, strict=True)
        for text in _warnings(field_encoder, fact, rows)
    ]
    return DataFacts(
        fields=tuple(facts),
        skipped=encoder.schema.skipped,
        leaks=tuple(leaks),
        warnings=(*(("", text) for text in warnings), *found),
    )


def leaking_fields(encoder: Encoder, rows: EncodedRows) -> list[str]:
    """Fields that alone determine the target of these rows, in more rows than chance explains."""
    target = encoder.schema.target
    assert target is not None and rows.target_R is not None
    if not len(rows):
        return []
    target_values = pl.Series("target", rows.target_R.astype(np.float64))
    share = most_frequent_share(target_values)
    return [
        field_encoder.field.name
        for f, field_encoder in enumerate(encoder.field_encoders)
        if _leaks(field_encoder, _groups(rows, f, target_values), target, share)
    ]


def _groups(rows: EncodedRows, position: int, target_values: pl.Series) -> pl.DataFrame:
    """One row per known value: value (id or number), n, and the range of the target."""
    ids_R = rows.ids_RF[:, position]
    if position in rows.layout.numerical:
        values = pl.Series(rows.numbers_RN[:, rows.layout.numerical.index(position)])
        known_R = ids_R == NUMBER_ID
    else:
        values, known_R = pl.Series(ids_R), ids_R >= FIRST_ID
    frame = pl.DataFrame({"value": values, "target": target_values}).filter(pl.Series(known_R))
    return frame.group_by("value").agg(n=pl.len(), low=pl.col("target").min(), high=pl.col("target").max())


def _leaks(field_encoder: FieldEncoder, groups: pl.DataFrame, target: Target, most_frequent: float) -> bool:
    if determines(groups, most_frequent):
        return True
    if isinstance(field_encoder.codec, Vocabulary):
        return False
    regression = target.task == "regression"
    if orders(groups, regression=regression):
        return True
    # A threshold of the target may fall inside a bin, which then has both classes: allow one such bin per threshold.
    pure = groups.filter(pl.col("low") == pl.col("high"))
    n_mixed = len(groups) - len(pure)
    return not regression and 0 < n_mixed < len(target.classes) and determines(pure, most_frequent)


def _n_training_rows(encoder: Encoder) -> int:
    """Training rows, from the fields with one value per row; 0 if there are none."""
    plain = (c.counts for c in encoder.field_encoders if list_kind(c.field) is None)
    return min((int(counts.sum()) for counts in plain), default=0)  # shared values are counted more often


def _field_facts(field_encoder: FieldEncoder, measured_R: np.ndarray, n_rows: int) -> FieldFacts:
    codec, total = field_encoder.codec, max(int(field_encoder.counts.sum()), 1)
    is_vocabulary, is_plain = isinstance(codec, Vocabulary), list_kind(field_encoder.field) is None
    shares = field_encoder.counts / total
    labels = field_encoder.labels()[FIRST_ID : FIRST_ID + N_FREQUENT].to_list() if is_vocabulary else []
    return FieldFacts(
        name=field_encoder.field.name,
        column=field_encoder.field.column,
        kind=_KINDS.get(field_encoder.field.numeric or field_encoder.field.kind, "category"),
        n_values=None if isinstance(codec, ScaledNumbers) else len(field_encoder.counts) - FIRST_ID,
        missing=float(shares[MISSING_ID]) if is_plain else _missing_lists(field_encoder, measured_R, n_rows),
        rare=float(shares[RARE_ID]) if is_vocabulary else 0.0,
        unknown=float((measured_R == RARE_ID).mean()) if is_vocabulary and len(measured_R) else 0.0,
        frequent=tuple((label, float(shares[FIRST_ID + at])) for at, label in enumerate(labels)),
        example=_example(field_encoder),
    )


def _missing_lists(field_encoder: FieldEncoder, measured_R: np.ndarray, n_rows: int) -> float:
    """Share of training rows with an empty list; of the measured rows where that is not known."""
    if not n_rows:
        return float((measured_R == MISSING_ID).mean()) if len(measured_R) else 0.0
    return min(float(field_encoder.counts[MISSING_ID] / n_rows), 1.0)


def _example(field_encoder: FieldEncoder) -> str | None:
    """A typical value of its column."""
    codec, field = field_encoder.codec, field_encoder.field
    if field.format is not None:
        return time_text(field.origin or 0, field.format)
    if isinstance(codec, ScaledNumbers):
        return f"{codec.mean:.6g}"
    if isinstance(codec, QuantileBins):
        return f"{codec.edges[len(codec.edges) // 2]:.6g}" if len(codec.edges) else None
    if field.numeric == "log2":  # the vocabulary holds bins
        return "1"
    return codec.values[0] if len(codec.values) else None


def _warnings(field_encoder: FieldEncoder, fact: FieldFacts, rows: str) -> list[str]:
    found = []
    if fact.missing > MANY_MISSING:
        found.append(f"{100 * fact.missing:.0f} % of the training rows have no value")
    if fact.rare > MANY_RARE and list_kind(field_encoder.field) is None:  # a list has other values
        found.append(f"{100 * fact.rare:.0f} % of the training rows have a value too rare to be learned on its own")
    if fact.unknown > max(MANY_UNKNOWN, 2 * fact.rare):
        found.append(f"{100 * fact.unknown:.0f} % of the {rows} have a value that is rare or unseen in training")
    n_known = int(field_encoder.counts[FIRST_ID:].sum())
    if fact.kind == "category" and fact.n_values and n_known < FEW_ROWS_PER_VALUE * fact.n_values:
        found.append(f"{fact.n_values:,} different values in {n_known:,} rows leave few rows per value")
    return found


_SPLITS = {
    "random": "at random",
    "stratified": "at random, with the same share of every class in each part",
    "group": "at random, keeping rows with the same {column} together",
    "time": "by {column}, holding out the latest rows",
    "column": "by the column {column}",
}
_VERSIONS = {"fielddep": "fielddep", "python": "Python", "torch": "PyTorch", "polars": "Polars", "platform": "on"}


def training_facts(
    run: Run,
    bundle: Bundle,
    *,
    checksum: str,
    parts: Mapping[str, int] | None = None,
    base_C: torch.Tensor | None = None,
) -> TrainingFacts:
    """Facts about a training; the rows of its parts and the logits of its base rate are None if unknown."""
    target, layout, environment = target_of(bundle), bundle.encoder.layout, run.environment
    source, asked = environment["source"], Config.from_toml(run.folder / REQUEST)
    return TrainingFacts(
        run=str(run.folder),
        bundle=checksum,
        source=source["name"] or "a table in memory",
        n_rows=source["rows"],
        parts=dict(parts or {}),
        split=_SPLITS[bundle.config.split.method].format(column=bundle.config.split.column),
        target=target.name,
        task=target.task,
        classes=tuple(map(str, target.classes)),
        base=() if base_C is None else tuple(base_C.double().tolist()),
        model=bundle.config.model.name,
        n_parameters=bundle.model.n_parameters,
        n_ids=layout.n_ids_total,
        crosses=layout.names[layout.n_fields :],
        changed=_changed_settings(Config().replace({"model.name": asked.model.name}), asked),
        decided=_changed_settings(asked, bundle.config),
        versions=tuple((name, str(environment[key])) for key, name in _VERSIONS.items()),
        command=shlex.join(environment["command"]),
    )


def _changed_settings(before: Config, after: Config) -> tuple[Setting, ...]:
    """Settings that differ, except those shown elsewhere in the report."""
    old, new = before.to_dict(), after.to_dict()
    return tuple(
        Setting(path=f"{section}.{key}", value=_text(value), default=_text(old[section].get(key)))
        for section, settings in new.items()
        for key, value in settings.items()
        if old[section].get(key) != value and f"{section}.{key}" not in ("data.target", "model.name")
    )


def _text(value: object) -> str:
    if value is None:
        return "not set"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

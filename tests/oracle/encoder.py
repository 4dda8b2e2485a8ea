"""An encoder learned from complete columns in memory, by other code than `learn_encoder`, which it judges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl

from fielddep.config.data import DataConfig, for_field
from fielddep.config.settings import Config
from fielddep.encoding.crosses import Cross, cross_positions, find_crosses, pair_codes
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldCells, FieldEncoder, field_texts
from fielddep.encoding.measures import HALVES, Measure, ValueTargets, half_of_rows
from fielddep.encoding.numbers import QuantileBins, ScaledNumbers, default_n_bins
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.schema import (
    Field,
    Schema,
    build_schema,
    candidate_names,
    check_column_names,
    plan_field,
    target_name,
)
from fielddep.encoding.target import Target, infer_target
from fielddep.encoding.values import as_number
from fielddep.encoding.vocabulary import Vocabulary


def learn(table: pl.DataFrame, config: Config, parts: np.ndarray | None = None) -> Encoder:
    """Encoder of a table whose training rows are those of part 0, or all rows."""
    rows = np.arange(len(table)) if parts is None else np.flatnonzero(parts == 0)
    train = table[rows]
    assert config.data.target is not None
    target = infer_target(table[config.data.target], config.data.task, config.data.missing_values)
    schema = replace(infer_schema(train, config, rows, target), target=target)
    return fit_encoder(train, schema, config.data, count_table=table, rows=rows)


def learn_rows(table: pl.DataFrame, config: Config, parts: np.ndarray) -> tuple[Encoder, EncodedRows]:
    """The same, and all rows encoded."""
    encoder = learn(table, config, parts)
    return encoder, encoder.encode(table, with_target=True, handle_unknown="rare")[0]


def infer_schema(
    table: pl.DataFrame, config: Config, rows: np.ndarray | None = None, all_target: Target | None = None
) -> Schema:
    """Fields, kinds and task of training rows, which have these numbers in a longer table."""
    name = target_name(table.columns, config)
    check_column_names(table.columns, config)
    target = infer_target(table[name], config.data.task, config.data.missing_values)
    score = scores(table, all_target or target, config.data)
    numbers = np.arange(len(table)) if rows is None else rows
    names = candidate_names(table.columns, config)
    planned = {name: plan_field(name, count_with_targets(table[name], score, numbers), config.data) for name in names}
    return build_schema(planned, target, config)


def scores(table: pl.DataFrame, target: Target, config: DataConfig) -> np.ndarray:
    """How high the target of every row is, minus the mean."""
    known = fit_scale(target, table[target.name], config.missing_values)
    encoded = known.encode(table[target.name], config.missing_values).astype(np.float64)
    score = encoded % 2 if target.task == "multiclass" else np.clip(encoded, -3, 3)
    return score - score.mean()


def count_with_targets(column: pl.Series, score: np.ndarray, rows: np.ndarray) -> pl.DataFrame:
    """Different values with rows and sums of scores, in all and in each half."""
    second = pl.Series(half_of_rows(0, int(rows.max()) + 1)[rows])
    frame = pl.DataFrame({"value": column, "score": score, "second": second})
    halves = [("n_first", ~second), ("n_second", second)]
    counts = [pl.lit(half).alias(name) for name, half in halves]
    assert HALVES == ("n_first", "n_second", "sum_first", "sum_second")
    sums = [
        (pl.col("score") * ~pl.col("second")).alias("sum_first"),
        (pl.col("score") * pl.col("second")).alias("sum_second"),
    ]
    frame = frame.with_columns(*counts, *sums)
    return frame.group_by("value").agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("n_first", "n_second").sum().cast(pl.Float64),
        pl.col("sum_first", "sum_second").sum(),
    )


def fit_encoder(
    table: pl.DataFrame,
    schema: Schema,
    config: DataConfig,
    *,
    count_table: pl.DataFrame | None = None,
    rows: np.ndarray | None = None,
) -> Encoder:
    """Vocabularies, scales and bins of training rows; `count_table` is for `counts_from = "all"`."""
    counted = count_table if config.counts_from == "all" and count_table is not None else table
    target = schema.target
    if target is not None and target.name in table.columns:
        target = fit_scale(target, table[target.name], config.missing_values)
    score = None if target is None or target.name not in table.columns else scores(table, target, config)
    numbers = np.arange(len(table)) if rows is None else rows
    encoder = Encoder(
        schema=replace(schema, target=target),
        field_encoders=tuple(fit_field(field, table, config, counted, score, numbers) for field in schema.fields),
        missing_values=config.missing_values,
        handle_unknown=config.handle_unknown,
    )
    return replace(encoder, crosses=_fit_crosses(encoder, table, config))


def fit_field(
    field: Field,
    table: pl.DataFrame,
    config: DataConfig,
    counted: pl.DataFrame,
    score: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> FieldEncoder:
    missing = config.missing_values if field.part is None else ()
    column, counted_column = (
        FieldCells(rows.__getitem__, config.missing_values).of(field) for rows in (table, counted)
    )
    codec: Vocabulary | ScaledNumbers | QuantileBins
    if field.numeric == "scale":
        codec = fit_scaled(as_number(column, missing))
    elif field.numeric == "quantile":
        numbers = as_number(column, missing)
        codec = fit_bins(numbers, config.n_bins or best_n_bins(numbers, score, rows))
    else:
        codec = Vocabulary.from_counts(
            *count_values(field_texts(field, counted_column, missing)),
            for_field(config.min_count, field.column, 1),
            keep_rare=config.handle_unknown == "error",
        )
    measure = fit_measure(as_number(column, missing)) if field.kind in ("numerical", "both") else None
    return FieldEncoder(field=field, codec=codec, missing_values=config.missing_values, measure=measure)


def fit_measure(numbers: pl.Series) -> Measure:
    distinct, counts = np.unique(numbers.drop_nulls().to_numpy(), return_counts=True)
    return Measure.of(distinct, counts, numbers.null_count())


def best_n_bins(numbers: pl.Series, score: np.ndarray | None, rows: np.ndarray | None) -> int:
    """As many bins as rows allow, or fewer if one half of the rows says so about the other."""
    at_most = default_n_bins(len(numbers))
    if score is None or rows is None or numbers.null_count() == len(numbers):
        return at_most
    known = numbers.is_not_null().to_numpy()
    counted = count_with_targets(numbers.drop_nulls(), score[known], rows[known])
    targets = ValueTargets.of(counted, counted["value"].to_numpy())
    assert targets is not None
    return targets.best_n_bins(at_most)


def count_values(texts: pl.Series) -> tuple[pl.Series, pl.Series, int]:
    """Different texts, the rows of each, and the rows without one."""
    counted = texts.drop_nulls().alias("value").value_counts(name="count")
    return counted["value"], counted["count"], texts.null_count()


def fit_scaled(numbers: pl.Series) -> ScaledNumbers:
    mean, std = mean_and_std(numbers)
    n_missing = numbers.null_count()
    return ScaledNumbers(mean=mean, std=std, n_missing=n_missing, n_numbers=len(numbers) - n_missing)


def fit_bins(numbers: pl.Series, n_bins: int) -> QuantileBins:
    distinct, counts = np.unique(numbers.drop_nulls().to_numpy(), return_counts=True)
    return QuantileBins.from_counts(distinct, counts, numbers.null_count(), n_bins)


def fit_scale(target: Target, column: pl.Series, missing_values: tuple[str, ...] = ("",)) -> Target:
    if target.task != "regression":
        return target
    mean, scale = mean_and_std(as_number(column, missing_values))
    return replace(target, mean=mean, scale=scale)


def mean_and_std(numbers: pl.Series) -> tuple[float, float]:
    """Of the known numbers; (0, 1) of none, standard deviation 1 of a constant."""
    known = numbers.drop_nulls().to_numpy()
    if not len(known):
        return 0.0, 1.0
    if known.min() == known.max():
        return float(known[0]), 1.0
    unit = 2.0 ** (math.frexp(float(np.abs(known).max()))[1] - 1)
    small = known / unit
    return float(small.mean()) * unit, float(small.std()) * unit or 1.0


def fit_cross(ids_RF: np.ndarray, n_ids: tuple[int, ...], pair: tuple[int, int], min_count: int) -> Cross:
    codes, counts = np.unique(pair_codes(ids_RF, pair, n_ids[pair[1]]), return_counts=True)
    return Cross.from_counts(codes, counts, n_ids, pair, min_count)


def find_pairs(
    ids_RF: np.ndarray, n_ids: tuple[int, ...], target_R: np.ndarray, seed: int = 0
) -> list[tuple[int, int]]:
    """`find_crosses` of rows in memory."""
    return find_crosses(len(ids_RF), n_ids, lambda rows: (ids_RF[rows], target_R[rows]), seed=seed)


def _fit_crosses(encoder: Encoder, table: pl.DataFrame, config: DataConfig) -> tuple[Cross, ...]:
    target = encoder.schema.target
    if config.crosses == "none" or target is None:
        return ()
    ids_RF = encoder.encode(table, handle_unknown="rare")[0].ids_RF
    n_ids, names = encoder.layout.n_ids, encoder.schema.field_names
    if config.crosses == "auto":
        pairs = find_pairs(ids_RF, n_ids, target.encode(table[target.name], config.missing_values))
    else:
        pairs = [cross_positions(pair, names) for pair in config.crosses]
    return tuple(fit_cross(ids_RF, n_ids, pair, config.cross_min_count) for pair in pairs)

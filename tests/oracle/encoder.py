"""An encoder learned from complete columns in memory, by other code than `learn_encoder`, which it judges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl

from fielddep.config.settings import Config, DataConfig, for_field
from fielddep.encoding.crosses import Cross, cross_positions, find_crosses, pair_codes
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldCells, FieldEncoder, field_texts
from fielddep.encoding.numbers import QuantileBins, ScaledNumbers, default_n_bins
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.schema import Field, Schema, build_schema, check_column_names, plan_fields, target_name
from fielddep.encoding.target import Target, infer_target
from fielddep.encoding.values import as_number
from fielddep.encoding.vocabulary import Vocabulary


def learn(table: pl.DataFrame, config: Config, parts: np.ndarray | None = None) -> Encoder:
    """Encoder of a table whose training rows are those of part 0, or all rows."""
    train = table if parts is None else table.filter(pl.Series(parts == 0))
    assert config.data.target is not None
    target = infer_target(table[config.data.target], config.data.task, config.data.missing_values)
    schema = replace(infer_schema(train, config), target=target)
    return fit_encoder(train, schema, config.data, count_table=table)


def learn_rows(table: pl.DataFrame, config: Config, parts: np.ndarray) -> tuple[Encoder, EncodedRows]:
    """The same, and all rows encoded."""
    encoder = learn(table, config, parts)
    return encoder, encoder.encode(table, with_target=True, handle_unknown="rare")[0]


def infer_schema(table: pl.DataFrame, config: Config) -> Schema:
    """Fields, kinds and task of training rows."""
    name = target_name(table.columns, config)
    check_column_names(table.columns, config)
    target = infer_target(table[name], config.data.task, config.data.missing_values)
    return build_schema(plan_fields(table, config), target, config)


def fit_encoder(
    table: pl.DataFrame, schema: Schema, config: DataConfig, *, count_table: pl.DataFrame | None = None
) -> Encoder:
    """Vocabularies, scales and bins of training rows; `count_table` is for `counts_from = "all"`."""
    counted = count_table if config.counts_from == "all" and count_table is not None else table
    target = schema.target
    if target is not None and target.name in table.columns:
        target = fit_scale(target, table[target.name], config.missing_values)
    encoder = Encoder(
        schema=replace(schema, target=target),
        field_encoders=tuple(fit_field(field, table, config, counted) for field in schema.fields),
        missing_values=config.missing_values,
        handle_unknown=config.handle_unknown,
    )
    return replace(encoder, crosses=_fit_crosses(encoder, table, config))


def fit_field(field: Field, table: pl.DataFrame, config: DataConfig, counted: pl.DataFrame) -> FieldEncoder:
    missing = config.missing_values if field.part is None else ()
    column, counted_column = (
        FieldCells(rows.__getitem__, config.missing_values).of(field) for rows in (table, counted)
    )
    codec: Vocabulary | ScaledNumbers | QuantileBins
    if field.numeric == "scale":
        codec = fit_scaled(as_number(column, missing))
    elif field.numeric == "quantile":
        codec = fit_bins(as_number(column, missing), config.n_bins or default_n_bins(len(table)))
    else:
        codec = Vocabulary.from_counts(
            *count_values(field_texts(field, counted_column, missing)),
            for_field(config.min_count, field.column, 1),
            keep_rare=config.handle_unknown == "error",
        )
    return FieldEncoder(field=field, codec=codec, missing_values=config.missing_values)


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

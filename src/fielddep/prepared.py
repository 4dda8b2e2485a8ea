"""Prepared: rows that are split and encoded, with every setting decided; from a table in memory or from a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl
import torch

from fielddep.config import Config
from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder, weight_numbers
from fielddep.data.schema import Schema, check_names, infer_schema, target_name
from fielddep.data.splits import Split, split_rows
from fielddep.data.store.loader import Rows, StorePart
from fielddep.data.store.store import Store
from fielddep.data.target import Target, infer_target
from fielddep.data.values import as_number
from fielddep.errors import ConfigError, SchemaError, SplitError
from fielddep.training.defaults import decide
from fielddep.training.objective import base_output


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """All that a training needs to know of its rows, wherever they lie.

    Attributes:
        config: settings, nothing left to decide.
        encoder: what the ids mean.
        parts: rows of train, validation and, where there are some, test.
        warnings: what is odd about the split.
    """

    config: Config
    encoder: TableEncoder
    parts: Mapping[str, Rows]
    warnings: tuple[str, ...] = ()

    @property
    def target(self) -> Target:
        """The column to predict."""
        assert self.encoder.schema.target is not None
        return self.encoder.schema.target

    @cached_property
    def base_C(self) -> torch.Tensor:
        """Output of a model that knows nothing but the base rate of the training rows."""
        return base_output(self.target, self.parts["train"])


@dataclass(frozen=True, kw_only=True)
class Prepared(TrainingData):
    """A table in memory that is split and encoded."""

    split: Split
    parts: dict[str, EncodedTable]


def prepare(table: pl.DataFrame, config: Config, *, split: Split | None = None) -> Prepared:
    """Split and encode a table; nothing of validation or test rows reaches the encoder."""
    if table.is_empty():
        raise SchemaError("the table has no rows; training needs some")
    name = target_name(table.columns, config)
    check_names(table, config)
    # The labels are known beforehand to be all those of the table, so a class seen in validation only is no surprise.
    target = infer_target(table[name], config.data.task, config.data.missing_values)
    if split is None:
        split = split_rows(table, config.split, name)
    _check_parts({"train": len(split.train), "validation": len(split.validation)})
    training_rows = table[split.train]
    schema: Schema = replace(infer_schema(training_rows, config), target=target)
    try:
        encoder, parts = _encode(table, training_rows, schema, config, split)
    except SchemaError:
        _check_cells(table, schema, config)
        raise
    _check_weights(parts)
    decided = decide(config, n_rows=len(split.train))
    return Prepared(config=decided, encoder=encoder, split=split, parts=parts, warnings=split.warnings)


def _encode(
    table: pl.DataFrame, training_rows: pl.DataFrame, schema: Schema, config: Config, split: Split
) -> tuple[TableEncoder, dict[str, EncodedTable]]:
    count_table = table if config.data.counts_from == "all" else None
    encoder = TableEncoder.fit(training_rows, schema, config.data, count_table=count_table)
    rows = {"train": split.train, "validation": split.validation, "test": split.test}
    parts = {
        name: encoder.encode(table[rows[name]], with_target=True, handle_unknown="rare")
        for name in rows
        if len(rows[name])
    }
    return encoder, parts


def _check_cells(table: pl.DataFrame, schema: Schema, config: Config) -> None:
    """Refuse a cell by its row in the whole table, as the encoder of a part counts from the part's first row."""
    for field in schema.fields:
        if field.numeric is not None:
            as_number(table[field.name], config.data.missing_values)
    if schema.weight is not None:
        weight_numbers(table[schema.weight], config.data.missing_values)


def prepare_store(store: Store, config: Config) -> TrainingData:
    """The rows of a store, which was split and encoded when it was made.

    Raises:
        ConfigError: when `config` asks for other data or split settings than those of the store.
        SplitError: when the store has no rows to train on or none to validate on.
    """
    settled = with_store_settings(config, store)
    if not store.n_rows_of["validation"]:
        raise SplitError(
            f"store {store.folder} has no rows for validation, which decides when to stop; encode the table anew with "
            "split.validation above 0"
        )
    _check_parts(store.n_rows_of)
    parts = {name: StorePart(store=store, part=name) for name, n_rows in store.n_rows_of.items() if n_rows}
    if store.encoder.schema.weight is not None:
        _check_weights(parts)
    decided = decide(settled, n_rows=store.n_rows_of["train"])
    return TrainingData(config=decided, encoder=store.encoder, parts=parts)


def with_store_settings(config: Config, store: Store) -> Config:
    """Settings with the sections `data` and `split` of a store.

    Raises:
        ConfigError: for a setting of these sections that is neither its default nor that of the store.
    """
    asked, made, defaults = config.to_dict(), store.config.to_dict(), Config().to_dict()
    for section in ("data", "split"):
        for key, value in asked[section].items():
            if value not in (defaults[section].get(key), made[section].get(key)):
                raise store_conflict(store, f"{section}.{key}", value)
    return replace(config, data=store.config.data, split=store.config.split)


def store_conflict(store: Store, path: str, value: object) -> ConfigError:
    """The error for a setting that is not that of the store."""
    section, _, key = path.partition(".")
    made = store.config.to_dict()[section].get(key)
    return ConfigError(
        f"store {store.folder} was encoded with {path} = {made!r}, which is settled; given {value!r}. Leave {path} "
        "out, or encode the table anew"
    )


def _check_parts(n_rows_of: Mapping[str, int]) -> None:
    if not n_rows_of["train"]:
        raise SplitError("no rows for training; lower split.validation and split.test, or give more rows")
    if not n_rows_of["validation"]:
        raise SplitError("no rows for validation, which decides when to stop; set split.validation above 0")


def _check_weights(parts: Mapping[str, Rows]) -> None:
    for name, part in parts.items():
        if not any(block.weight_R is None or float(block.weight_R.sum()) for block in part.blocks()):
            raise SchemaError(f"all {name} rows have weight 0; give some rows of each part a weight above 0")

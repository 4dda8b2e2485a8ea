"""Prepare: from a table or store to split and encoded rows, with no open setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from fielddep.config.defaults import fill_defaults
from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import sample_rows
from fielddep.encoding.split import Parts
from fielddep.encoding.target import Target
from fielddep.errors import ConfigError, SchemaError, SplitError, UserError
from fielddep.store.build import build_store
from fielddep.store.shards import StorePart
from fielddep.store.store import Store
from fielddep.tables.readers import Source
from fielddep.training.metrics import base_output


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """The rows of a training, in memory or on disk.

    Attributes:
        config: settings without open ones.
        store: rows and encoder.
        parts: rows of train, validation and, if there are any, test.
    """

    config: Config
    store: Store
    parts: Mapping[str, StorePart]

    @classmethod
    def of(cls, store: Store, config: Config) -> Prepared:
        """The parts of a store that have rows; evidence that the model does not use is dropped."""
        store = store if config.model.uses_evidence else store.without_evidence()
        parts = {name: store.part(name) for name, n_rows in store.n_rows_of.items() if n_rows}
        return cls(config=config, store=store, parts=parts)

    @property
    def encoder(self) -> Encoder:
        """The encoder of the rows."""
        return self.store.encoder

    @property
    def target(self) -> Target:
        """The column to predict."""
        assert self.encoder.schema.target is not None
        return self.encoder.schema.target

    @cached_property
    def base_C(self) -> torch.Tensor:
        """Output of a model that only knows the base rate of the training rows."""
        return base_output(self.target, self.parts["train"].chunks())


def prepare(source: Source | Store, config: Config, *, parts: Parts | None = None) -> Prepared:
    """Split and encode a table, or take the rows of a store, and fill in open settings.

    The encoder sees nothing of validation and test rows. Evidence is counted only for a model that uses it.

    Args:
        source: a table, or a store, which is already split and encoded.
        config: settings. A store keeps its own data and split settings.
        parts: part of every row, as an index into `PART_NAMES`, instead of the split of the settings.

    Raises:
        ConfigError: `config` has other data or split settings than the store.
        SplitError: there are no training or validation rows, or parts are given for a store.
    """
    if isinstance(source, Store):
        if parts is not None:
            raise SplitError("a store is already split; drop parts, or give the table instead")
        store, config = source, with_store_settings(config, source)
    else:
        store = build_store(source, config, parts=parts, evidence=config.model.uses_evidence)
    _check_parts(store)
    prepared = Prepared.of(store, decided(config, store))
    if store.encoder.schema.weight is not None:
        _check_weights(prepared.parts)
    return prepared


def decided(config: Config, store: Store) -> Config:
    """Settings without open ones, for training on the rows of a store."""
    target = store.encoder.schema.target
    assert target is not None
    on_ids = target.task == "regression" and not store.layout.measured
    return fill_defaults(config, n_rows=store.n_rows_of["train"], regression_on_ids=on_ids)


def search_rows(store: Store, config: Config, *, n_rows: int | None = None, seed: int = 0) -> Prepared:
    """Training and validation rows of a store, for a search.

    Open settings follow from the number of all training rows, because the result will be used on all of them.

    Args:
        store: the rows.
        config: settings of model and training.
        n_rows: most training rows; if there are more, a random sample is taken.
        seed: seed of the sample.
    """
    prepared = prepare(store, config)
    parts = {name: prepared.parts[name] for name in ("train", "validation")}
    if n_rows is not None and n_rows < len(parts["train"]):
        if n_rows < 1:
            raise UserError(f"a search needs at least one training row; given --rows {n_rows}")
        parts["train"] = StorePart.of(sample_rows(parts["train"].chunks(), n_rows, seed=seed).rows)
    return replace(prepared, parts=parts)


def with_store_settings(config: Config, store: Store) -> Config:
    """Settings with the sections `data` and `split` of a store.

    Raises:
        ConfigError: a setting of these sections is neither its default nor that of the store.
    """
    asked, made, defaults = config.to_dict(), store.config.to_dict(), Config().to_dict()
    for section in ("data", "split"):
        for key, value in asked[section].items():
            if value not in (defaults[section].get(key), made[section].get(key)):
                raise store_conflict(store, f"{section}.{key}", value)
    return replace(config, data=store.config.data, split=store.config.split)


def store_conflict(store: Store, path: str, value: object) -> ConfigError:
    """The error for a setting that differs from the store's."""
    section, _, key = path.partition(".")
    made = store.config.to_dict()[section].get(key)
    return ConfigError(
        f"store {store.folder} was encoded with {path} = {made!r}; given {value!r}. Drop {path}, or encode the table "
        "again"
    )


def _check_parts(store: Store) -> None:
    n_rows_of = store.n_rows_of
    where = "" if store.path is None else f" in store {store.folder}"
    if not n_rows_of["train"]:
        raise SplitError(f"no rows for training{where}; lower split.validation and split.test, or give more rows")
    if not n_rows_of["validation"]:
        how = "set" if store.path is None else "encode the table again with"
        raise SplitError(f"no rows for validation{where}, which decides when to stop; {how} split.validation above 0")


def _check_weights(parts: Mapping[str, StorePart]) -> None:
    for name, part in parts.items():
        if not any(chunk.weight_R is None or float(chunk.weight_R.sum()) for chunk in part.chunks()):
            raise SchemaError(f"all {name} rows have weight 0; some rows of each part need a weight above 0")

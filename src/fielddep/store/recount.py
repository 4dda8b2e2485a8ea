"""Recount: the evidence of a store, counted again on training and validation rows, for the training that sees both.

The combinations stay; everything that follows from counts is made again, as if all these rows had been training rows
from the start: cells, the base rate that statements are relative to, the priors, and the mean weight of a row. Folds
are those of the split, so a row of either part meets neither its own target nor those of its group or of later rows.
Test rows are told what all counted rows say and count nothing. Ids and the scale of a regression target are part of
what the model was chosen with and stay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fielddep.encoding.learn_evidence import counted_rows, learn_evidence, statements_of_rows
from fielddep.encoding.rows import FOLDS, PARTS, Array, RowArray
from fielddep.encoding.split import PART_NAMES
from fielddep.store.store import Store


def recount(store: Store, scratch: Path | None = None) -> Store:
    """The store with evidence of training and validation rows; itself if it has no evidence.

    Nothing of a store on disk is changed. Its new statements are in files without a name, which the system removes as
    soon as nothing uses them, also after a kill.

    Args:
        store: has the folds of its rows.
        scratch: folder for these files; None means the folder of the system.

    Raises:
        StoreError: the store has no folds, because it was encoded by an earlier version.
    """
    before = store.encoder.evidence
    if before is None:
        return store
    allocate = partial(_in_file, scratch) if store.shards.on_disk else _in_memory
    rows = counted_rows(
        _chunks(store),
        store.n_rows,
        store.encoder,
        in_order=before.in_order,
        min_rows=store.config.data.evidence_min_rows,
        allocate=allocate,
    )
    evidence, said = learn_evidence(rows, allocate, before.combinations, 0)
    said_RE = allocate("evidence", (store.n_rows, store.layout.n_statements), "<f2")
    for start, stop in _bounds(store):
        said_RE[start:stop] = statements_of_rows(said, start, stop)
    encoder = replace(store.encoder, evidence=evidence)
    return replace(store, encoder=encoder, shards=store.shards.with_statements(said_RE))


def _chunks(store: Store) -> Iterator[dict[str, RowArray]]:
    """All rows, with validation rows as training rows."""
    train, validation = PART_NAMES.index("train"), PART_NAMES.index("validation")
    for start, stop in _bounds(store):
        parts_R = store.parts(start, stop)
        parts_R = np.where(parts_R == validation, train, parts_R).astype(parts_R.dtype)
        yield {**store.read(start, stop).arrays, PARTS: parts_R, FOLDS: store.folds(start, stop)}


def _bounds(store: Store) -> Iterator[tuple[int, int]]:
    size = store.shards.chunk_rows
    return ((start, min(start + size, store.n_rows)) for start in range(0, store.n_rows, size))


def _in_memory(name: str, shape: tuple[int, ...], dtype: str) -> Array:
    return np.empty(shape, dtype=dtype)


def _in_file(folder: Path | None, name: str, shape: tuple[int, ...], dtype: str) -> Array:
    with tempfile.TemporaryFile(dir=folder) as file:  # the array keeps it open
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)

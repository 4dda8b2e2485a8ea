"""Learn evidence: choose combinations, count their cells, and say what they say about every row."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fielddep.encoding.choosing import choose_combinations
from fielddep.encoding.coded import CodedTable
from fielddep.encoding.column_tables import ColumnTables
from fielddep.encoding.counting import Combination, CountedRows, count_all
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.evidence import Evidence
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.split import ReadParts
from fielddep.errors import SchemaError
from fielddep.wording import did_you_mean

log = logging.getLogger(__name__)

N_FOLDS = 10

Allocate = Callable[[str, tuple[int, ...], str], npt.NDArray[Any]]
"""Makes an array, in memory or in a file, given name, shape and type."""


def learn_evidence(
    rows: CountedRows,
    allocate: Allocate,
    combinations: Sequence[Combination] | None,
    max_combinations: int,
    max_cells: float = math.inf,
) -> tuple[Evidence, npt.NDArray[np.float16]]:
    """Count cells, and make the statements of all rows (K, R, C + 1).

    Args:
        rows: the table.
        allocate: makes the array of the statements.
        combinations: which to count, whatever their cells; None ranks them.
        max_combinations: pairs and triples, at most, that are ranked.
        max_cells: cells, at most, of those that are ranked; with more, combinations of least gain are dropped.
    """
    if combinations is None:
        combinations = choose_combinations(rows, max_combinations)
    else:
        max_cells = math.inf
    said = allocate("statements", (len(combinations), len(rows), rows.n_outputs + 1), "<f2")
    cells = count_all(rows, combinations, said, max_cells=max_cells)
    if len(cells) < len(combinations):
        log.warning(
            "evidence: %d of %d combinations are dropped, because all would have more than data.evidence_max_cells = "
            "%d joint values. Raise it to keep more",
            len(combinations) - len(cells),
            len(combinations),
            max_cells,
        )
    return Evidence.of(rows.task, rows.base_C, cells), said[: len(cells)]


def counted_rows(
    table: CodedTable,
    encoder: Encoder,
    parts: ReadParts,
    folds: Callable[[int, int], npt.NDArray[np.int64]],
    *,
    in_order: bool,
    min_rows: int,
    allocate: Allocate,
) -> CountedRows:
    """The rows of a coded table; ids are kept in arrays of `allocate`."""
    target = encoder.schema.target
    assert target is not None
    tables, fields, n_rows = ColumnTables(table, encoder), encoder.schema.fields, table.n_rows
    ids_FR = allocate("ids", (len(fields), n_rows), "<i4")
    lists: dict[int, list[Ragged]] = {f: [] for f in encoder.layout.lists}
    targets, weights, found_parts, found_folds = [], [], [], []
    for start, stop in table.chunks():
        for f in range(len(fields)):
            if f in lists:
                lists[f].append(tables.lists(f, start, stop))
            else:
                ids_FR[f, start:stop] = tables.ids(f, start, stop)
        targets.append(tables.target(start, stop))
        weights.append(tables.weights(start, stop))
        found_parts.append(parts(start, stop))
        found_folds.append(folds(start, stop).astype(np.uint8))
    known_weights = [chunk for chunk in weights if chunk is not None]
    parts_R = np.concatenate(found_parts)
    weight_R = np.concatenate(known_weights) if known_weights else None
    if weight_R is not None:  # only ratios of weights matter: a training row counts as one row on average
        weight_R = weight_R / max(float(weight_R[parts_R == 0].mean(dtype=np.float64)), 1e-30)
    return CountedRows(
        columns=[Ragged.concat(lists[f]) if f in lists else ids_FR[f] for f in range(len(fields))],
        n_ids=encoder.layout.n_ids[: len(fields)],
        measured=encoder.layout.measured,
        target_R=np.concatenate(targets),
        weight_R=weight_R,
        parts_R=parts_R,
        folds_R=np.concatenate(found_folds),
        in_order=in_order,
        min_rows=min_rows if min_rows > 1 else 0.0,  # weights may add up to less than one row
        task=target.task,
        n_outputs=target.n_outputs,
    )


def named_combinations(named: Sequence[Sequence[str]], encoder: Encoder) -> list[Combination]:
    """All single fields, and the combinations that the settings name.

    Raises:
        SchemaError: a name is not a field, or occurs twice; or a field has several values per row.
    """
    names = encoder.schema.field_names
    found: list[Combination] = [(f,) for f in range(len(names))]
    for wanted in named:
        for name in wanted:
            if name not in names:
                advice = did_you_mean(name, names, what="fields")
                raise SchemaError(f"data.evidence names {name!r}, which is not a field; {advice}")
        fields = tuple(sorted({names.index(name) for name in wanted}))
        if len(fields) != len(wanted) or not 2 <= len(fields) <= 3:
            raise SchemaError(f"a combination joins two or three different fields; data.evidence holds {list(wanted)}")
        of_lists = [names[f] for f in fields if f in encoder.layout.lists]
        if of_lists:
            raise SchemaError(
                f"a combination joins fields with one value per row; {of_lists[0]!r} has several. Remove it in "
                "data.evidence"
            )
        found.append(fields)
    return list(dict.fromkeys(found))

"""Learn evidence: choose combinations, count their cells, and say what they say about every row."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fielddep.encoding.choosing import choose_combinations
from fielddep.encoding.counting import Combination, CountedRows, count_all
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.evidence import MAX_JOINED, Evidence
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import FOLDS, IDS, PARTS, TARGET, WEIGHT, Array, RowArray, list_name
from fielddep.errors import SchemaError
from fielddep.wording import did_you_mean

log = logging.getLogger(__name__)

N_FOLDS = 20

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
        max_combinations: combinations of several fields, at most, that are ranked.
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
    return Evidence.of(rows.task, rows.base_C, cells, in_order=rows.in_order), said[: len(cells)]


def statements_of_rows(said: npt.NDArray[np.float16], start: int, stop: int) -> npt.NDArray[np.float16]:
    """Statements about the rows from `start` to `stop`, row by row, from those of all rows (K, R, C + 1)."""
    n_statements = said.shape[0] * said.shape[2]
    rows: npt.NDArray[np.float16] = said[:, start:stop].transpose(1, 0, 2).reshape(stop - start, n_statements)
    return rows


def counted_rows(
    chunks: Iterable[Mapping[str, RowArray]],
    n_rows: int,
    encoder: Encoder,
    *,
    in_order: bool,
    min_rows: int,
    allocate: Allocate,
) -> CountedRows:
    """All rows, given chunk by chunk as the arrays of a store; ids are kept in an array of `allocate`."""
    target = encoder.schema.target
    assert target is not None
    n_fields, start = len(encoder.schema.fields), 0
    ids_FR = allocate("ids", (n_fields, n_rows), "<i4")
    lists: dict[int, list[Ragged]] = {f: [] for f in encoder.layout.lists}
    found: dict[str, list[Array]] = {name: [] for name in (IDS, TARGET, WEIGHT, PARTS, FOLDS)}
    for arrays in chunks:
        for name, array in arrays.items():
            if name in found and not isinstance(array, Ragged):
                found[name].append(array)
        for f, of_field in lists.items():
            listed = arrays[list_name(f)]
            assert isinstance(listed, Ragged)
            of_field.append(listed)
        ids_RF = found[IDS].pop()
        ids_FR[:, start : start + len(ids_RF)] = ids_RF[:, :n_fields].T
        start += len(ids_RF)
    parts_R = np.concatenate(found[PARTS])
    weight_R: npt.NDArray[np.float32] | None = np.concatenate(found[WEIGHT]) if found[WEIGHT] else None
    if weight_R is not None:  # only ratios of weights matter: a training row counts as one row on average
        weight_R = weight_R / max(float(weight_R[parts_R == 0].mean(dtype=np.float64)), 1e-30)
    return CountedRows(
        columns=[Ragged.concat(lists[f]) if f in lists else ids_FR[f] for f in range(n_fields)],
        n_ids=encoder.layout.n_ids[:n_fields],
        measured=encoder.layout.measured,
        target_R=np.concatenate(found[TARGET]),
        weight_R=weight_R,
        parts_R=parts_R,
        folds_R=np.concatenate(found[FOLDS]),
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
        if len(fields) != len(wanted) or not 2 <= len(fields) <= MAX_JOINED:
            raise SchemaError(f"a combination joins two to four different fields; data.evidence holds {list(wanted)}")
        of_lists = [names[f] for f in fields if f in encoder.layout.lists]
        if of_lists:
            raise SchemaError(
                f"a combination joins fields with one value per row; {of_lists[0]!r} has several. Remove it in "
                "data.evidence"
            )
        found.append(fields)
    return list(dict.fromkeys(found))

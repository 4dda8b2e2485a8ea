"""Diabetes130 on a miniature in its raw format: label, missing cells, numbers, patients in one part."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fielddep.datasets.diabetes130 import FIELDS, NUMBERS, PATIENT, RECIPE
from tests.datasets.miniature import Change, refuses, set_line, write_lines

N_ROWS = 60
HEADER = ",".join(["encounter_id", "patient_nbr", *FIELDS, "readmitted"])


def line(row: int, **cells: str) -> str:
    """Patient p stays three times; a stay ends with <30, >30 or NO."""
    values = {name: "7" if name in NUMBERS else "None" for name in FIELDS} | {"race": "?", "gender": "Female"} | cells
    return ",".join([str(row), str(row // 3), *values.values(), ("<30", ">30", "NO")[row % 3]])


def write(folder: Path, change: Change = lambda lines: None) -> Path:
    lines = [HEADER, *(line(row) for row in range(N_ROWS))]
    change(lines)
    write_lines(folder / "diabetic_data.csv", lines)
    return folder


def test_values_and_parts(tmp_path: Path) -> None:
    table = RECIPE.table(write(tmp_path))
    assert table.columns == [*FIELDS, "readmitted", PATIENT, "split"]
    assert table["readmitted"].to_list() == [1, 0, 0] * 20
    assert table["race"].null_count() == N_ROWS
    assert set(table["A1Cresult"]) == {"None"}
    assert tuple(name for name in FIELDS if table.schema[name] == pl.Int64) == tuple(
        name for name in FIELDS if name in NUMBERS
    )
    assert table.group_by(PATIENT).agg(pl.col("split").n_unique())["split"].to_list() == [1] * 20
    assert table["split"].value_counts().sort("split").rows() == [("test", 6), ("train", 48), ("validation", 6)]


def test_evidence_keeps_patients_together(tmp_path: Path) -> None:
    """The first diagnosis is the patient's own, so no training row is told anything by it."""
    settings = {"data.evidence": [["diag_1", "gender"]]}

    def own_diagnosis(lines: list[str]) -> None:
        lines[1:] = [line(row, diag_1=f"d{row // 3}") for row in range(N_ROWS)]

    store = RECIPE.prepare(write(tmp_path, own_diagnosis), tmp_path / "store", settings=settings)
    assert "patient_nbr" not in store.layout.names
    [place] = [at for at, fields in enumerate(store.layout.evidence) if fields == (store.layout.names.index("diag_1"),)]
    width = store.layout.evidence_width
    train = next(iter(store.part(("train",)).chunks()))
    assert train.evidence_RE is not None
    assert not train.evidence_RE[:, place * width : (place + 1) * width].any()


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (
            set_line(1, HEADER.replace("insulin,", "")),
            ("diabetic_data.csv, line 1", "insulin not found"),
        ),
        (set_line(8, "1,2"), ("diabetic_data.csv, line 8", 50, 2)),
        (
            set_line(8, line(6, num_procedures="many")),
            ("diabetic_data.csv, row 7", "whole number", "num_procedures", "'many'"),
        ),
    ],
)
def test_malformed_lines(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write(tmp_path, change), *facts)

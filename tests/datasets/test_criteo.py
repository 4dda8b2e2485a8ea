"""Criteo on a miniature in its raw format: bins of counts, empty cells, minimum counts, malformed lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.datasets.criteo import CATEGORIES, COUNTS, FIELDS, RECIPE
from tests.datasets.miniature import Change, decoded, n_categories, refuses, set_line, write_lines

BINS = {
    "": "<missing>",
    "-2": "-4",
    "0": "-2",
    "1": "-1",
    "2": "0",
    "3": "1",  # ln(3)^2 = 1.21
    "7": "3",  # ln(7)^2 = 3.79
    "8": "4",  # ln(8)^2 = 4.32
    "100": "21",  # ln(100)^2 = 21.2
    "1000000": "190",  # ln(10^6)^2 = 190.9
}
N_EACH = 35
N_ROWS = N_EACH * len(BINS)


def line(row: int) -> str:
    """I1 goes through the bins, 35 rows each; C1 is a in 35 rows, b in 34, empty in 35 and c in the others."""
    counts = [list(BINS)[row // N_EACH]] + [str(row % 2)] * 12
    kind = "a" if row < 35 else "b" if row < 69 else "" if row < 104 else "c"
    return "\t".join([str(row % 4 // 3), *counts, kind, *["68fd1e64"] * 25])


def write(folder: Path, change: Change = lambda lines: None) -> Path:
    lines = [line(row) for row in range(N_ROWS)]
    change(lines)
    write_lines(folder / "criteo" / "train.txt", lines)
    return folder


def test_values_and_parts(tmp_path: Path) -> None:
    store = RECIPE.prepare(write(tmp_path), tmp_path / "store", counts_from="all")
    rows = decoded(store)
    assert rows.columns[:-2] == list(FIELDS) == [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    assert rows["I1"].to_list() == [name for name in BINS.values() for _ in range(N_EACH)]
    assert rows["I2"].to_list()[:3] == ["-2", "-1", "-2"]
    assert rows["C1"].to_list()[33:36] == ["a", "a", "<rare>"]
    assert rows["C1"].to_list()[67:70] == ["<rare>", "<rare>", "<missing>"]
    assert rows["C1"].to_list()[103:105] == ["<missing>", "c"]
    assert rows["target"].sum() == sum(row % 4 == 3 for row in range(N_ROWS))
    assert store.n_rows_of == {"train": 280, "validation": 35, "test": 35}
    # ten bins; two in each other count; a, c, rare and missing; one in each other field
    assert n_categories(store.encoder) == 10 + 12 * 2 + 4 + 25


def test_bins_that_are_rare_together(tmp_path: Path) -> None:
    def change(lines: list[str]) -> None:
        lines[0] = "0\t9" + line(0)[2:]  # one row of ln(9)^2 = 4.8, so in the bin of 8

    store = RECIPE.prepare(write(tmp_path, change), tmp_path / "store", counts_from="all")
    rows = decoded(store)
    assert rows["I1"].to_list()[:2] == ["4", "<missing>"]
    assert rows["I1"].to_list()[N_EACH * 7] == "4"


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (set_line(3, "1\t2"), ("train.txt, line 3", 40, "label to C26", 2)),
        (set_line(4, "2" + line(3)[1:]), ("train.txt, line 4", "0 or 1", "label", "'2'")),
        (
            set_line(60, line(59).replace("\t1\t", "\t1.5\t", 1)),
            ("train.txt, line 60", "whole number", "I2", "'1.5'"),
        ),
    ],
)
def test_malformed_lines(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write(tmp_path, change), *facts)


def test_kinds() -> None:
    config = RECIPE.config()
    assert {config.data.kinds[name] for name in COUNTS} == {"numerical"}
    assert {config.data.kinds[name] for name in CATEGORIES} == {"categorical"}
    assert config.data.min_count == 35

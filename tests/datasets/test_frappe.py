"""Frappe on a miniature of the log and of the public libfm files: negatives, labels, parts, malformed lines."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fielddep.datasets.frappe import FIELDS, LIBFM, RECIPE
from tests.datasets.miniature import Change, decoded, refuses, set_line, write_lines

HEADER = "user\titem\tcnt\tdaytime\tweekday\tisweekend\thomework\tcost\tweather\tcountry\tcity"
N_USES, N_APPS = 40, 12


def line(row: int) -> str:
    """User u uses the apps u, u + 4 and u + 8 of twelve."""
    user = row % 4
    context = f"morning\tsunday\tweekend\tunknown\tfree\tsunny\tUnited States\t{row % 3}"
    return f"{user}\t{user + 4 * (row % 3)}\t{row}\t{context}"


def write(folder: Path, change: Change = lambda lines: None) -> Path:
    lines = [HEADER, *(line(row) for row in range(N_USES))]
    change(lines)
    write_lines(folder / "frappe.csv", lines)
    return folder


def write_libfm(folder: Path, change: Change = lambda lines: None) -> Path:
    """Ten, four and two rows; the label says whether user and item are of the same parity."""
    lines = [
        " ".join([("-1", "1")[row % 3 == 0], *(f"{10 * field + row % 4}:1" for field in range(10))])
        for row in range(16)
    ]
    change(lines)
    for name, part in zip(LIBFM, (lines[:10], lines[10:14], lines[14:]), strict=True):
        write_lines(folder / "frappe" / name, part)
    return folder


def test_negatives_of_the_log(tmp_path: Path) -> None:
    table = RECIPE.table(write(tmp_path))
    assert table.columns == [*FIELDS, "used", "split"]
    assert table["used"].to_list() == [1, 0, 0] * N_USES
    positives, first, second = (table[place::3] for place in range(3))
    assert positives["item"].to_list() == [line(row).split("\t")[1] for row in range(N_USES)]
    for half in (first, second):
        context = [name for name in FIELDS if name != "item"]
        assert half.select(context).equals(positives.select(context))
        used = {(row["user"], row["item"]) for row in positives.iter_rows(named=True)}
        assert not used & {(row["user"], row["item"]) for row in half.iter_rows(named=True)}
        assert set(half["item"]) <= {str(app) for app in range(N_APPS)}
    assert (first["item"] == second["item"]).sum() == 0
    assert table["split"].value_counts().sort("split").rows() == [("test", 12), ("train", 96), ("validation", 12)]


def test_the_seed_decides(tmp_path: Path) -> None:
    write(tmp_path)
    first, other = RECIPE.table(tmp_path), RECIPE.table(tmp_path, seed=1)
    assert first.equals(RECIPE.table(tmp_path))
    assert not first["item"].equals(other["item"])
    assert not first["split"].equals(other["split"])


def test_the_store_holds_the_table(tmp_path: Path) -> None:
    table = RECIPE.table(write(tmp_path))
    rows = decoded(RECIPE.prepare(tmp_path, tmp_path / "store", counts_from="all"))
    assert rows.select(FIELDS).equals(table.select(FIELDS))
    assert rows["target"].to_list() == table["used"].to_list()
    assert rows["part"].to_list() == table["split"].to_list()


def test_libfm_files_are_joined(tmp_path: Path) -> None:
    table = RECIPE.table(write_libfm(tmp_path))
    assert table["used"].to_list() == [int(row % 3 == 0) for row in range(16)]
    assert table["city"].to_list() == [str(90 + row % 4) for row in range(16)]
    assert table["user"].to_list()[:5] == ["0", "1", "2", "3", "0"]
    assert sorted(table["split"].value_counts()["count"].to_list()) == [1, 3, 12]


def test_the_log_is_taken_before_libfm_files(tmp_path: Path) -> None:
    write(write_libfm(tmp_path))
    assert len(RECIPE.table(tmp_path)) == 3 * N_USES


def test_two_of_three_libfm_files(tmp_path: Path) -> None:
    (write_libfm(tmp_path) / "frappe" / LIBFM[0]).unlink()
    assert [file.name for file in RECIPE.missing_files(tmp_path)] == [LIBFM[0]]
    refuses(
        RECIPE,
        tmp_path,
        *("frappe.csv", "6.3 MB", "Not found: frappe.train.libfm"),
    )


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (set_line(1, HEADER.replace("weather", "rain")), ("frappe.csv, line 1", "weather not found")),
        (set_line(4, "1\t2\t3"), ("frappe.csv, line 4", 11, 3)),
        (lambda lines: lines.__delitem__(slice(1, None)), ("frappe.csv", "no rows")),
        (lambda lines: lines.__delitem__(slice(3, None)), ("user", "2 values", "item")),
    ],
)
def test_malformed_log(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write(tmp_path, change), *facts)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (set_line(12, "1 1:1"), ("frappe.validation.libfm, line 2", 11, "used, user", 2, "'1 1:1'")),
        (set_line(1, "2" + " 1:1" * 10), ("frappe.train.libfm, line 1", "label", "used", "'2'")),
        (
            set_line(16, "1" + " 1:1" * 9 + " 1:2"),
            ("frappe.test.libfm, line 2", "token", "city", "'1:2'"),
        ),
    ],
)
def test_malformed_libfm(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write_libfm(tmp_path, change), *facts)


@pytest.mark.dataset
def test_public_libfm_files_have_the_fields_of_the_log(data_home: Path) -> None:
    """In the two public files, every field has as many values as in the log."""
    from fielddep.datasets.raw import RawFile, find_raw_files, read_libfm

    wanted = [RawFile(name=name, n_bytes=0) for name in LIBFM[1:]]
    found = find_raw_files(wanted, data_home, archives=RECIPE.archives)
    table = read_libfm(list(found.values()), "used", FIELDS)
    assert table.height == 57_722 + 28_860
    log = RECIPE.table(data_home)
    small = [name for name in FIELDS if log[name].n_unique() < 10]  # all of whose values are in these files
    assert len(small) == 6
    assert table.select(pl.col(small).n_unique()).equals(log.select(pl.col(small).n_unique()))

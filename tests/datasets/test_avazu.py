"""Avazu on a miniature in its raw format: dropped id, minimum counts, packed and unpacked files, malformed lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fielddep.datasets.avazu import FIELDS, RECIPE
from tests.datasets.miniature import Change, decoded, n_categories, refuses, set_line, write_lines

HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,"
    "device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)
N_ROWS = 100


def line(row: int) -> str:
    """Device 0a is in 4 rows and 0b in 3; every other device is in 31."""
    device = "0a" if row < 4 else "0b" if row < 7 else f"d{row % 3}"
    cells = [f"100000941815109{row}", str(row % 2), f"141021{row % 24:02}", "1005", "0", "1fbe01fe", "f3845767"]
    cells += ["28905ebd", "ecad2386", "7801e8d9", "07d7df22", device, "ddd2926e", "44956a24", "1", "2"]
    return ",".join([*cells, "15706", "320", "50", "1722", "0", "35", "-1", "79"])


def write(folder: Path, change: Change = lambda lines: None) -> Path:
    lines = [HEADER, *(line(row) for row in range(N_ROWS))]
    change(lines)
    write_lines(folder / "train", lines)
    return folder


def test_values_and_parts(tmp_path: Path) -> None:
    store = RECIPE.prepare(write(tmp_path), tmp_path / "store", counts_from="all")
    rows = decoded(store)
    assert rows.columns[:-2] == list(FIELDS)
    assert rows["target"].to_list() == [float(row % 2) for row in range(N_ROWS)]
    assert rows["device_id"].to_list()[:9] == ["0a"] * 4 + ["<rare>"] * 3 + ["d1", "d2"]
    assert rows["hour"].to_list()[:25] == [f"141021{hour:02}" for hour in range(24)] + ["14102100"]
    assert set(rows["C20"]) == {"-1"}
    assert store.n_rows_of == {"train": 80, "validation": 10, "test": 10}
    # 24 hours, 0a, three d and rare, and 20 fields of one value
    assert n_categories(store.encoder) == 24 + 5 + 20


@pytest.mark.parametrize("place", ["train.csv", "avazu/train.csv", "avazu/train.gz"])
def test_places_of_the_file(tmp_path: Path, place: str) -> None:
    text = (write(tmp_path / "before") / "train").read_bytes()
    path = tmp_path / "raw" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(text) if place.endswith(".gz") else text)
    assert not RECIPE.missing_files(tmp_path / "raw")
    store = RECIPE.prepare(tmp_path / "raw", tmp_path / "store")
    assert decoded(store).equals(decoded(RECIPE.prepare(tmp_path / "before", tmp_path / "plain")))


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (
            set_line(1, HEADER.replace("hour,", "")),
            ("train, line 1", "id,click,hour,C1", "id,click,C1"),
        ),
        (set_line(5, "a,b"), ("train, line 5", 24, 2)),
        (set_line(9, line(3).replace(",1,", ",2,", 1)), ("train, line 9", "0 or 1", "click", "'2'")),
        (lambda lines: lines.__delitem__(slice(1, None)), ("train", "no rows")),
    ],
)
def test_malformed_lines(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write(tmp_path, change), *facts)


def test_a_line_among_blank_ones_is_a_range(tmp_path: Path) -> None:
    def change(lines: list[str]) -> None:
        lines[8] = line(3).replace(",1,", ",2,", 1)
        lines.insert(4, "")

    refuses(RECIPE, write(tmp_path, change), "train, lines 1 to 102", "click", "'2'")

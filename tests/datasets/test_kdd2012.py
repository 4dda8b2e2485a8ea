"""KDD2012 on a miniature in its raw format: labels, minimum counts, parts, resuming, malformed lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fielddep.datasets.kdd2012 import FIELDS, RECIPE
from fielddep.errors import UserError
from tests.datasets.miniature import Change, decoded, n_categories, refuses, set_line, write_lines
from tests.helpers import raises
from tests.observers import StageWatch
from tests.streamed import small_chunks

__all__ = ["small_chunks"]
N_ROWS = 500
SHARES = (320, 80, 100)
"""8:2, then a fifth of the training rows: 64 %, 16 % and 20 %."""


def line(row: int) -> str:
    """Ad 90 is in 10 rows, ad 91 in 9; users 5 to 9 are in 12 rows each, all others are unique."""
    clicks = {0: "0", 1: "1", 2: "12"}[row % 3]
    ad = "90" if row < 10 else "91" if row < 19 else str(row % 20)
    user = str(5 + row % 5) if row < 60 else f"1{row}"
    cells = [clicks, str(1 + row % 2), "14340390157469404125", ad, "23808", "1", "1", "3", "16", "4", "6", user]
    return "\t".join(cells)


def write(folder: Path, change: Change = lambda lines: None) -> Path:
    lines = [line(row) for row in range(N_ROWS)]
    change(lines)
    write_lines(folder / "training.txt", lines)
    return folder


def test_all_rows_counted(tmp_path: Path) -> None:
    store = RECIPE.prepare(write(tmp_path), tmp_path / "store", counts_from="all")
    rows = decoded(store)
    assert rows["target"].to_list() == [float(row % 3 > 0) for row in range(N_ROWS)]
    assert rows.columns[:-2] == list(FIELDS)
    assert rows["impression"].to_list() == [str(1 + row % 2) for row in range(N_ROWS)]
    assert rows["ad_id"].to_list()[:20] == ["90"] * 10 + ["<rare>"] * 9 + ["19"]
    assert rows["user_id"].to_list()[:60] == [str(5 + row % 5) for row in range(60)]
    assert set(rows["user_id"][60:]) == {"<rare>"}
    assert tuple(store.n_rows_of.values()) == SHARES
    # 2 impressions; ads 0 to 19, 90 and rare; users 5 to 9 and rare; 8 fields of one value
    assert n_categories(store.encoder) == 2 + 22 + 6 + 8


def test_training_rows_counted_by_default(tmp_path: Path) -> None:
    store = RECIPE.prepare(write(tmp_path), tmp_path / "store")
    rows = decoded(store)
    raw = [line(row).split("\t") for row in range(N_ROWS)]
    for column, name in ((3, "ad_id"), (11, "user_id")):
        trained = Counter(cells[column] for cells, part in zip(raw, rows["part"], strict=True) if part == "train")
        expected = [cells[column] if trained[cells[column]] >= 10 else "<rare>" for cells in raw]
        assert rows[name].to_list() == expected


def test_seed_and_settings(tmp_path: Path) -> None:
    write(tmp_path)
    first = RECIPE.prepare(tmp_path, tmp_path / "first")
    other = RECIPE.prepare(tmp_path, tmp_path / "other", seed=1, settings={"data.min_count": 1})
    assert first.n_rows_of == other.n_rows_of
    assert first.parts(0, N_ROWS).tolist() != other.parts(0, N_ROWS).tolist()
    assert other.config.data.min_count == 1
    assert "<rare>" not in set(decoded(other).filter(part="train")["user_id"])


def interrupt_at(n_rows: int) -> StageWatch:
    def interrupt(stage: str, n_done: int) -> None:
        if n_done >= n_rows:
            raise KeyboardInterrupt

    return StageWatch(interrupt)


@pytest.mark.usefixtures("small_chunks")
def test_an_interrupted_preparation_resumes(tmp_path: Path) -> None:
    write(tmp_path)
    whole = RECIPE.prepare(tmp_path, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        RECIPE.prepare(tmp_path, tmp_path / "store", observer=interrupt_at(250))
    with raises(UserError, "unfinished", "store"):
        RECIPE.prepare(tmp_path, tmp_path / "store")
    watch = StageWatch()
    store = RECIPE.prepare(tmp_path, tmp_path / "store", resume=True, observer=watch)
    assert watch.rows("read")[0] > 200
    assert decoded(store).equals(decoded(whole))


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (set_line(7, "1\t2\t3"), ("training.txt, line 7", 12, "click to user_id", 3)),
        (set_line(320, line(0) + "\t0"), ("line 320", 12, 13)),
        (set_line(1, "x" + line(0)), ("training.txt, line 1", "column click", "'x0'")),
        (set_line(498, line(0)[1:]), ("line 498", "column click", "''")),
        (lambda lines: lines.clear(), ("training.txt", "empty", 12)),
    ],
)
@pytest.mark.usefixtures("small_chunks")
def test_malformed_lines(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write(tmp_path, change), *facts)

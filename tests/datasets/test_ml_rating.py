"""ML-Rating on a miniature in its raw format: the join, the ignored time, parts, malformed lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.datasets.ml_rating import FIELDS, RECIPE
from tests.datasets.miniature import Change, decoded, refuses, set_line, write_lines

USERS = ["1::F::1::10::48067", "2::M::56::16::98107-2117", "3::M::25::15::55117"]
N_ROWS = 20


def line(row: int, time: str = "::978300760") -> str:
    return f"{1 + row % 3}::{100 + row % 7}::{1 + row % 5}{time}"


def write(
    folder: Path,
    change: Change = lambda lines: None,
    *,
    time: str = "::978300760",
    change_users: Change = lambda lines: None,
) -> Path:
    ratings, users = [line(row, time) for row in range(N_ROWS)], list(USERS)
    change(ratings)
    change_users(users)
    write_lines(folder / "ml-1m" / "ratings.dat", ratings)
    write_lines(folder / "ml-1m" / "users.dat", users)
    return folder


@pytest.mark.parametrize("time", ["::978300760", ""])
def test_ratings_are_joined_with_users(tmp_path: Path, time: str) -> None:
    table = RECIPE.table(write(tmp_path, time=time))
    assert table.columns == [*FIELDS, "rating", "split"]
    assert table.drop("split").rows()[:3] == [
        ("1", "F", "1", "10", "48067", "100", 1.0),
        ("2", "M", "56", "16", "98107-2117", "101", 2.0),
        ("3", "M", "25", "15", "55117", "102", 3.0),
    ]
    assert table["split"].value_counts().sort("split").rows() == [("test", 2), ("train", 16), ("validation", 2)]
    rows = decoded(RECIPE.prepare(tmp_path, tmp_path / "store", counts_from="all"))
    assert rows.select(FIELDS).equals(table.select(FIELDS))
    assert rows["part"].to_list() == table["split"].to_list()


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (
            set_line(3, "1::2"),
            ("ratings.dat, line 3", 3, "user, movie, rating", "'::'", 2, "'1::2'"),
        ),
        (set_line(3, "1::2::3::4::5"), ("ratings.dat, line 3", 3, 5)),
        (set_line(20, "1::2::6::4"), ("ratings.dat, line 20", "from 1 to 5", "rating", "'6'")),
        (set_line(5, "9::2::4::4"), ("ratings.dat, line 5", "users.dat", "'9'")),
        (lambda lines: lines.clear(), ("ratings.dat", "empty")),
    ],
)
def test_malformed_ratings(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write(tmp_path, change), *facts)


def test_a_repeated_user(tmp_path: Path) -> None:
    write(tmp_path, change_users=lambda users: users.append(USERS[0]))
    refuses(RECIPE, tmp_path, "users.dat, line 4", "once", "'1'")

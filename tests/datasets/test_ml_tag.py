"""ML-Tag on miniatures of the public libfm files and of MovieLens' own tags: negatives, parts, malformed lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.datasets.ml_tag import FIELDS, LIBFM, PART_RECIPE, RECIPE
from tests.datasets.miniature import Change, refuses, set_line, write_lines

TAGS = [
    ("1", "10", "funny"),
    ("1", "10", "dark, slow"),
    ("2", "10", "funny"),
    ("2", "11", 'a "classic"'),
    ("3", "12", "boring"),
]


def libfm_lines() -> list[str]:
    return [f"{('-1', '1')[row % 3 == 0]} {row}:1 {50 + row % 4}:1 {90 + row % 5}:1" for row in range(20)]


def write_libfm(folder: Path, change: Change = lambda lines: None) -> Path:
    lines = libfm_lines()
    change(lines)
    for name, part in zip(LIBFM, (lines[:14], lines[14:18], lines[18:]), strict=True):
        write_lines(folder / "ml-tag" / name, part)
    return folder


def write_tags(folder: Path, name: str) -> Path:
    """MovieLens' file, one tag given twice."""
    rows = [*TAGS, TAGS[0]]
    if name == "tags.csv":
        lines = ["userId,movieId,tag,timestamp"]
        lines += [",".join([u, m, '"' + tag.replace('"', '""') + '"', "1443148538"]) for u, m, tag in rows]
    else:
        lines = ["::".join([*row, "1215184630"]) for row in rows]
    write_lines(folder / name, lines)
    return folder


def test_libfm_files_are_joined(tmp_path: Path) -> None:
    table = RECIPE.table(write_libfm(tmp_path))
    assert table.columns == [*FIELDS, "tagged", "split"]
    assert table.drop("split").rows() == [
        (str(row), str(50 + row % 4), str(90 + row % 5), int(row % 3 == 0)) for row in range(20)
    ]
    assert table["split"].value_counts().sort("split").rows() == [("test", 2), ("train", 16), ("validation", 2)]


def test_the_part_alone(tmp_path: Path) -> None:
    write_lines(tmp_path / "ml-tag.part.libfm", libfm_lines())
    assert [file.name for file in RECIPE.missing_files(tmp_path)] == list(LIBFM)
    table = PART_RECIPE.table(tmp_path)
    assert table.equals(RECIPE.table(write_libfm(tmp_path / "whole")))


@pytest.mark.parametrize("name", ["tags.csv", "tags.dat"])
def test_negatives_of_the_tags(tmp_path: Path, name: str) -> None:
    table = RECIPE.table(write_tags(tmp_path, name))
    assert table["tagged"].to_list() == [1, 0, 0] * len(TAGS)
    assert table[::3].select(FIELDS).rows() == TAGS
    for seed in range(20):
        rows = RECIPE.table(tmp_path, seed=seed).select(FIELDS).rows()
        for place, positive in enumerate(TAGS):
            negatives = rows[3 * place + 1 : 3 * place + 3]
            assert {row[:2] for row in negatives} == {positive[:2]}
            assert len(set(negatives)) == 2
            assert not set(negatives) & set(TAGS)


def test_all_remaining_tags_are_equally_likely(tmp_path: Path) -> None:
    write_tags(tmp_path, "tags.csv")
    drawn = [RECIPE.table(tmp_path, seed=seed)["tag"][13] for seed in range(300)]
    counts = sorted(drawn.count(tag) for tag in set(drawn))
    assert len(counts) == 3  # of four tags the user gave the movie one
    assert counts[0] > 70


def test_too_few_tags_to_draw_from(tmp_path: Path) -> None:
    write_lines(tmp_path / "tags.csv", ["userId,movieId,tag,timestamp", "1,1,a,1", "1,1,b,1", "1,2,c,1"])
    refuses(RECIPE, tmp_path, "user and movie", "2 values", "tag", 1)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (set_line(16, "1 2:1 3:1"), ("ml-tag.validation.libfm, line 2", 4, 3, "'1 2:1 3:1'")),
        (set_line(20, "1 2:1 x:1 3:1"), ("ml-tag.test.libfm, line 2", "index:1", "movie", "'x:1'")),
    ],
)
def test_malformed_lines(tmp_path: Path, change: Change, facts: tuple[object, ...]) -> None:
    refuses(RECIPE, write_libfm(tmp_path, change), *facts)

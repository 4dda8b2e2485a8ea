"""Parts of a folder appear and go in one move."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fielddep.tables.folders import remove_workdir, start_workdir


def fill(name: str):
    return lambda fresh: (fresh / name).touch()


def test_a_part_appears_whole_and_replaces_another(tmp_path: Path):
    part = tmp_path / "new" / "part"
    start_workdir(part, fill("a"))
    start_workdir(part, fill("b"))
    assert [path.name for path in part.iterdir()] == ["b"]
    assert [path.name for path in part.parent.iterdir()] == ["part"]


def test_a_part_that_cannot_be_filled_leaves_the_old_one(tmp_path: Path):
    def fail(fresh: Path) -> None:
        raise OSError("disk full")

    start_workdir(tmp_path / "part", fill("a"))
    with pytest.raises(OSError, match="disk full"):
        start_workdir(tmp_path / "part", fail)
    assert [path.name for path in (tmp_path / "part").iterdir()] == ["a"]


def test_a_part_that_is_half_deleted_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    start_workdir(tmp_path / "part", fill("a"))
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)
    remove_workdir(tmp_path / "part")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".part.")
    remove_workdir(tmp_path / "part")

"""Parts of a folder appear and go in one move."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fielddep.folders import begin_part, discard_part


def fill(name: str):
    return lambda fresh: (fresh / name).touch()


def test_a_part_appears_whole_and_replaces_another(tmp_path: Path):
    part = tmp_path / "new" / "part"
    begin_part(part, fill("a"))
    begin_part(part, fill("b"))
    assert [path.name for path in part.iterdir()] == ["b"]
    assert [path.name for path in part.parent.iterdir()] == ["part"]


def test_a_part_that_cannot_be_filled_leaves_the_old_one(tmp_path: Path):
    def fail(fresh: Path) -> None:
        raise OSError("disk full")

    begin_part(tmp_path / "part", fill("a"))
    with pytest.raises(OSError, match="disk full"):
        begin_part(tmp_path / "part", fail)
    assert [path.name for path in (tmp_path / "part").iterdir()] == ["a"]


def test_a_part_that_is_half_deleted_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begin_part(tmp_path / "part", fill("a"))
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)
    discard_part(tmp_path / "part")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".part.")
    discard_part(tmp_path / "part")

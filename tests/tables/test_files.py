"""Atomic writing: the old file or the new one, whole."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from fielddep.errors import UserError
from fielddep.tables.files import sha256, write_atomically, write_json, write_text
from tests.helpers import raises


def test_writes_new_folders_and_replaces(tmp_path: Path):
    path = tmp_path / "a" / "b" / "file.txt"
    write_text(path, "één\n")
    assert path.read_bytes() == "één\n".encode()
    write_text(path, "two")
    assert path.read_text() == "two"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_json_is_sorted_so_that_equal_content_gives_equal_bytes(tmp_path: Path):
    write_json(tmp_path / "a.json", {"b": [1, 2.5], "a": "ü"})
    write_json(tmp_path / "b.json", {"a": "ü", "b": [1, 2.5]})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (tmp_path / "a.json").read_text("utf-8") == '{\n  "a": "ü",\n  "b": [\n    1,\n    2.5\n  ]\n}\n'


def test_sha256_of_a_file_longer_than_a_block(tmp_path: Path):
    data = os.urandom((1 << 20) + 7)
    (tmp_path / "f").write_bytes(data)
    assert sha256(tmp_path / "f") == hashlib.sha256(data).hexdigest()


def half_then(error: BaseException):
    def write(path: Path) -> None:
        path.write_text("half")
        raise error

    return write


def test_a_full_disk_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("old")
    full = OSError(errno.ENOSPC, "No space left on device")
    with raises(UserError, "file", "No space left on device", "untouched"):
        write_atomically(path, half_then(full))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("bug")])
def test_an_interrupt_or_a_bug_leaves_the_old_file(tmp_path: Path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_atomically(path, half_then(error))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with raises(UserError, "inside"):
        write_text(tmp_path / "file" / "inside", "x")


def test_a_folder_in_the_way(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with raises(UserError, "cannot write"):
        write_text(tmp_path / "folder", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]

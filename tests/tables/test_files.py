"""Atomic writing: the old file or the new one, whole."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from fielddep.errors import StoreError, UserError
from fielddep.tables.files import ManifestFormat, file_facts, sha256, write_atomically, write_json, write_text
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


def test_sha256_of_a_file_longer_than_a_chunk(tmp_path: Path):
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


# --- manifests ------------------------------------------------------------------------------------------------

ALBUM = ManifestFormat(what="album", version=2, error=StoreError, kind="an album")


def write_album(folder: Path, **content: object) -> None:
    write_text(folder / "song", "la")
    ALBUM.write(folder, content, {"song": file_facts(folder / "song")})


def test_a_manifest_comes_back(tmp_path: Path):
    write_album(tmp_path, year=1999)
    manifest = ALBUM.read(tmp_path)
    assert (manifest["kind"], manifest["format"], manifest["year"]) == ("an album", 2, 1999)
    assert manifest["files"] == {"song": {"bytes": 2, "sha256": hashlib.sha256(b"la").hexdigest()}}
    ALBUM.check_files(tmp_path, manifest)


def test_a_file_of_the_same_size_is_told_by_its_checksum(tmp_path: Path):
    write_album(tmp_path)
    manifest = ALBUM.read(tmp_path)
    (tmp_path / "song").write_text("lo")
    ALBUM.check_files(tmp_path, manifest, sizes_only=True)
    ALBUM.check_files(tmp_path, manifest, ())
    with raises(StoreError, tmp_path / "song", "altered"):
        ALBUM.check_files(tmp_path, manifest)


def test_manifests_of_other_kinds_and_newer_formats_are_refused(tmp_path: Path):
    write_album(tmp_path)
    with raises(UserError, tmp_path / "manifest.json", "film", "kind 'an album'"):
        ManifestFormat(what="film", version=2, error=UserError).read(tmp_path)
    with raises(StoreError, "format 2", "format 1", "upgrade"):
        ManifestFormat(what="album", version=1, error=StoreError, kind="an album").read(tmp_path)
    with raises(StoreError, "no album", tmp_path / "nowhere", "manifest.json"):
        ALBUM.read(tmp_path / "nowhere")

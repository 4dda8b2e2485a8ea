"""Folders of experiments: whose they are, one process at a time, and nothing left where nothing came of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fielddep.errors import UserError
from fielddep.experiments.experiment_folder import (
    ABLATION,
    COMPARISON,
    LOCK,
    SEARCH,
    Experiment,
    mark_folder,
    working_in,
)

HOLD = (
    "import sys; from pathlib import Path; "
    "from fielddep.experiments.experiment_folder import COMPARISON, working_in\n"
    "with working_in(Path(sys.argv[1]), COMPARISON): print('held', flush=True); sys.stdin.read()"
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_kept_for_one_process(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    mark_folder(tmp_path, "shop", "abc", COMPARISON)
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another process works in"), working_in(tmp_path, COMPARISON):
            pass
        other.communicate("")
    with working_in(tmp_path, COMPARISON), working_in(tmp_path, COMPARISON):
        assert names(tmp_path) == [LOCK, "comparison.json"]
    assert names(tmp_path) == ["comparison.json"]


def test_a_folder_is_kept_for_one_thread(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    told: list[str] = []

    def work() -> None:
        try:
            with working_in(tmp_path, SEARCH):
                told.append("worked")
        except UserError as error:
            told.append(str(error))

    with working_in(tmp_path, SEARCH):
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert told == [f"another process works in {tmp_path}; wait for it, or choose another --out"]


def test_the_mark_is_there_before_the_rows(tmp_path: Path) -> None:
    with working_in(tmp_path / "out", COMPARISON):
        (tmp_path / "out" / "store").mkdir()
    with pytest.raises(UserError, match="holds no ablation but a comparison"), working_in(tmp_path / "out", ABLATION):
        pass
    with working_in(tmp_path / "out", COMPARISON):
        mark_folder(tmp_path / "out", "shop", "abc", COMPARISON)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == {"dataset": "shop", "store": "abc"}
    with pytest.raises(UserError, match="other rows than shop"):
        mark_folder(tmp_path / "out", "shop", "def", COMPARISON)


@pytest.mark.parametrize("kind", [SEARCH, COMPARISON, ABLATION])
def test_a_folder_with_other_things_beside_a_store_is_refused(kind: Experiment, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with working_in(tmp_path, kind):
        pass
    (tmp_path / kind.mark).unlink(missing_ok=True)
    (tmp_path / "notes.txt").write_text("dear")
    with pytest.raises(UserError, match=f"holds no {kind.what}; choose another"), working_in(tmp_path, kind):
        pass


@pytest.mark.parametrize("kind", [SEARCH, COMPARISON])
def test_a_file_in_place_of_the_folder_is_told(kind: Experiment, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("dear")
    with pytest.raises(UserError, match="cannot be used: Not a directory"), working_in(tmp_path / "out", kind):
        pass


def test_nothing_stays_where_nothing_came_of_it(tmp_path: Path) -> None:
    def fails() -> None:
        raise UserError("there is no table")

    (tmp_path / "made").mkdir()
    for folder in (tmp_path / "made", tmp_path / "new"):
        with pytest.raises(UserError, match="no table"), working_in(folder, COMPARISON):
            fails()
    assert names(tmp_path) == ["made"]
    assert names(tmp_path / "made") == []

"""Folders of experiments: whose they are, one process at a time, and the store of a table, made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from fielddep.errors import ConfigError, StoreError, TableError, UserError
from fielddep.experiments import folder as folder_module
from fielddep.experiments.folder import (
    ABLATION,
    COMPARISON,
    LOCK,
    OWNER,
    SEARCH,
    Experiment,
    mark_folder,
    open_source,
    working_in,
)
from tests.conftest import quick_config, small_frame
from tests.stores import write_store

HOLD = (
    "import sys; from pathlib import Path; "
    "from fielddep.experiments.folder import COMPARISON, working_in\n"
    "with working_in(Path(sys.argv[1]), COMPARISON): print('held', flush=True); sys.stdin.read()"
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_kept_for_one_process(tmp_path: Path) -> None:
    mark_folder(tmp_path, "shop", "abc", COMPARISON)
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"{tmp_path} .*process {other.pid} "), working_in(tmp_path, COMPARISON):
            pass
        other.communicate("")
    with working_in(tmp_path, COMPARISON), working_in(tmp_path, COMPARISON):
        assert names(tmp_path) == [LOCK, OWNER, "comparison.json"]
    assert names(tmp_path) == ["comparison.json"]


def test_a_folder_is_kept_for_one_thread(tmp_path: Path) -> None:
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
    [said] = told
    assert f"{tmp_path} " in said and f"process {os.getpid()} " in said


def test_the_mark_is_there_before_the_rows(tmp_path: Path) -> None:
    with working_in(tmp_path / "out", COMPARISON):
        (tmp_path / "out" / "store").mkdir()
    with pytest.raises(UserError, match=r"out .*comparison.*ablation"), working_in(tmp_path / "out", ABLATION):
        pass
    with working_in(tmp_path / "out", COMPARISON):
        mark_folder(tmp_path / "out", "shop", "abc", COMPARISON)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == {"dataset": "shop", "store": "abc"}
    with pytest.raises(UserError, match=r"comparison.*shop"):
        mark_folder(tmp_path / "out", "shop", "def", COMPARISON)


@pytest.mark.parametrize("kind", [SEARCH, COMPARISON, ABLATION])
def test_a_folder_with_other_things_beside_a_store_is_refused(kind: Experiment, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with working_in(tmp_path, kind):
        pass
    (tmp_path / kind.mark).unlink(missing_ok=True)
    (tmp_path / "notes.txt").write_text("dear")
    with pytest.raises(UserError, match=f"{tmp_path} .*{kind.what}"), working_in(tmp_path, kind):
        pass


@pytest.mark.parametrize("kind", [SEARCH, COMPARISON])
def test_a_file_in_place_of_the_folder_is_told(kind: Experiment, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("dear")
    with pytest.raises(UserError, match=r"out .*Not a directory"), working_in(tmp_path / "out", kind):
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


SETTINGS = {"data.target": "good", "data.crosses": "none"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "shop.csv"
    small_frame(200).write_csv(path)
    return path


def test_a_table_is_encoded_once(table: Path, tmp_path: Path) -> None:
    first = open_source(str(table), tmp_path / "store", settings=SETTINGS)
    made = (tmp_path / "store" / "manifest.json").stat().st_mtime_ns
    again = open_source(str(table), tmp_path / "store", settings=SETTINGS)
    assert (first.dataset, first.store.n_rows) == ("shop", 200)
    assert again.store.sha256 == first.store.sha256
    assert (tmp_path / "store" / "manifest.json").stat().st_mtime_ns == made


def test_other_settings_or_another_table_are_refused(table: Path, tmp_path: Path) -> None:
    open_source(str(table), tmp_path / "store", settings=SETTINGS)
    with pytest.raises(StoreError, match="split"):
        open_source(str(table), tmp_path / "store", settings={**SETTINGS, "split.seed": 1})
    pl.read_csv(table).head(150).write_csv(table)
    os.utime(table, ns=(1, 1))
    with pytest.raises(UserError, match=r"shop\.csv"):
        open_source(str(table), tmp_path / "store", settings=SETTINGS)


def test_a_store_is_taken_as_it_is(tmp_path: Path) -> None:
    made = write_store(tmp_path / "rows", small_frame(), quick_config(data__crosses="none"))
    found = open_source(str(tmp_path / "rows"), tmp_path / "unused")
    assert (found.dataset, found.store.sha256) == ("rows", made.sha256)
    assert not (tmp_path / "unused").exists()
    with pytest.raises(ConfigError, match=r"data\.target"):
        open_source(str(tmp_path / "rows"), tmp_path / "unused", settings={"data.target": "shape"})


def test_a_data_set_is_prepared_by_its_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_store(tmp_path / "rows", small_frame(), quick_config(data__crosses="none"))
    calls = []

    def store_for(*words: object, **named: object) -> object:
        calls.append((words, named["settings"]))
        return made

    monkeypatch.setattr(folder_module, "store_for", store_for)
    found = open_source("frappe", tmp_path / "store", settings={"data.crosses": "auto"}, raw=tmp_path)
    assert (found.dataset, found.store) == ("frappe", made)
    assert calls == [(("frappe", tmp_path / "store", tmp_path), {"data.crosses": "auto"})]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="'frappe'"):
        open_source("frapp", tmp_path)
    with pytest.raises(TableError, match=r"nowhere/x\.csv"):
        open_source("nowhere/x.csv", tmp_path)
    with pytest.raises(ConfigError, match=r"train\.lr"):
        open_source("frappe", tmp_path, settings={"train.lr": 1})

"""A store, a table or the name of a data set becomes one store, made once."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from fielddep.errors import ConfigError, StoreError, TableError, UserError
from fielddep.experiments import sources
from fielddep.experiments.sources import open_source
from tests.conftest import quick_config, small_frame
from tests.stores import write_store

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
    with pytest.raises(StoreError, match="other settings"):
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

    monkeypatch.setattr(sources, "store_for", store_for)
    found = open_source("frappe", tmp_path / "store", settings={"data.crosses": "auto"}, raw=tmp_path)
    assert (found.dataset, found.store) == ("frappe", made)
    assert calls == [(("frappe", tmp_path / "store", tmp_path), {"data.crosses": "auto"})]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="did you mean 'frappe'"):
        open_source("frapp", tmp_path)
    with pytest.raises(TableError, match=r"there is no nowhere/x\.csv"):
        open_source("nowhere/x.csv", tmp_path)
    with pytest.raises(ConfigError, match=r"train\.lr"):
        open_source("frappe", tmp_path, settings={"train.lr": 1})

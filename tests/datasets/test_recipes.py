"""All recipes: consistent facts, missing files, stores by name, and the real files if available.

The facts of KDD2012, Avazu, Criteo and ML-Tag are those that the paper states; they are verified only where the
published files are in the folder that FIELDDEP_DATA names.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import polars as pl
import pytest

from fielddep.datasets import RECIPES, find_recipe, load_table, store_for
from fielddep.datasets.recipe import DATA_HOME, Recipe, StreamRecipe, TableRecipe
from fielddep.datasets.sampling import part_sizes
from fielddep.encoding.split import wanted_rows
from fielddep.errors import ConfigError, StoreError, TableError, UserError
from fielddep.training.fit import fit
from tests.datasets import test_frappe, test_kdd2012
from tests.datasets.miniature import decoded, n_categories
from tests.helpers import raises

STREAMED = [name for name, recipe in RECIPES.items() if isinstance(recipe, StreamRecipe)]
PAPER = {
    "kdd2012": (149_639_105, (95_764_025, 23_941_007, 29_934_073), 6_658_036, 11),
    "avazu": (40_428_967, (32_343_173, 4_042_896, 4_042_898), 6_865_066, 22),
    "criteo": (45_840_617, (36_672_493, 4_584_061, 4_584_063), 11_745_438, 39),
    "ml-tag": (2_006_859, (1_605_487, 200_685, 200_687), 668_953, 3),
    "ml-rating": (1_000_209, (800_167, 100_020, 100_022), 575_281, 6),
    "frappe": (288_609, (230_887, 28_860, 28_862), 96_203, 10),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_facts_hold_together(recipe: Recipe) -> None:
    facts = recipe.facts
    assert sum(facts.parts) == facts.rows
    assert 0 < facts.positives < facts.rows
    assert facts.target not in facts.fields
    assert len(set(facts.fields)) == len(facts.fields)
    assert facts.page
    assert facts.terms
    config = recipe.config()
    assert config.data.fields == facts.fields
    assert set(config.data.kinds) == set(facts.fields)
    assert config.data.counts_from == "train"
    assert recipe.config(counts_from="all", seed=3).split.seed == 3


@pytest.mark.parametrize("name", PAPER)
def test_facts_are_those_of_the_paper(name: str) -> None:
    facts = RECIPES[name].facts
    assert (facts.rows, facts.parts, facts.positives, len(facts.fields)) == PAPER[name]


@pytest.mark.parametrize("name", STREAMED)
def test_shares_give_the_parts_of_the_paper(name: str) -> None:
    facts, split = RECIPES[name].facts, RECIPES[name].config().split
    test, validation = (wanted_rows(share, facts.rows) for share in (split.test, split.validation))
    assert (facts.rows - validation - test, validation, test) == facts.parts


@pytest.mark.parametrize("name", ["ml-tag", "ml-rating", "frappe", "ml-tag-part", "flights", "synthetic"])
def test_tables_are_cut_into_the_parts_of_the_paper(name: str) -> None:
    assert part_sizes(RECIPES[name].facts.rows) == RECIPES[name].facts.parts


def test_unknown_names() -> None:
    with pytest.raises(UserError, match=r"'Frapp'.*'frappe'"):
        find_recipe("Frapp")
    with pytest.raises(UserError, match="'ml-rating'"):
        find_recipe("ml_rating")


# --- files ----------------------------------------------------------------------------------------------------


def test_missing_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_HOME, raising=False)
    with pytest.raises(TableError) as error:
        RECIPES["ml-rating"].prepare(tmp_path, tmp_path / "store")
    for part in (
        *(str(tmp_path), str(tmp_path / "ml-rating"), "ml-1m.zip"),
        *("24.6 MB", "134.4 kB", "Not found: ratings.dat, users.dat"),
        "https://grouplens.org/datasets/movielens/1m",
        "research only, no redistribution (GroupLens)",
        *("--raw", "FIELDDEP_DATA"),
    ):
        assert part in str(error.value)
    with raises(TableError, "criteo", "train.txt", "11.1 GB", "FIELDDEP_DATA"):
        RECIPES["criteo"].prepare(None, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_frappe.write(tmp_path / "home")
    monkeypatch.setenv(DATA_HOME, str(tmp_path / "home"))
    assert not RECIPES["frappe"].missing_files()
    assert load_table("frappe").height == 3 * test_frappe.N_USES
    assert RECIPES["frappe"].missing_files(tmp_path)


def test_files_within_a_zip(tmp_path: Path) -> None:
    test_frappe.write(tmp_path)
    with zipfile.ZipFile(tmp_path / "frappe.zip", "w") as archive:
        archive.write(tmp_path / "frappe.csv", "any/folder/frappe.csv")
        archive.writestr("__MACOSX/frappe.train.libfm", "nothing")
    plain = load_table("frappe", tmp_path)
    (tmp_path / "frappe.csv").rename(tmp_path / "elsewhere")
    assert load_table("frappe", tmp_path).equals(plain)
    (tmp_path / "frappe.zip").write_bytes(b"PK nothing")
    with raises(TableError, tmp_path / "frappe.zip", "download"):
        load_table("frappe", tmp_path)


# --- tables and stores ----------------------------------------------------------------------------------------


def test_large_data_sets_are_not_tables(tmp_path: Path) -> None:
    with raises(UserError, "kdd2012", "149,639,105 rows", "10.0 GB", "data prepare kdd2012"):
        load_table("kdd2012", tmp_path)


def test_a_table_is_trained_on_as_its_recipe_says(tmp_path: Path) -> None:
    recipe = RECIPES["synthetic"]
    table = load_table("synthetic").group_by("split", maintain_order=True).head(300)
    settings = {"train.max_epochs": 1, "model.d_embed": 2, "model.hidden": [4], "train.eval_every": 1}
    fitted = fit(table, recipe.config(settings=settings))
    assert len(fitted.prepared.encoder.schema.field_names) == 6


def test_a_store_is_made_once(tmp_path: Path) -> None:
    test_frappe.write(tmp_path)
    made = store_for("frappe", tmp_path / "store", tmp_path)
    (tmp_path / "frappe.csv").unlink()
    again = store_for("frappe", tmp_path / "store", tmp_path)
    assert decoded(again).equals(decoded(made))
    with raises(StoreError, "frappe", "other settings"):
        store_for("frappe", tmp_path / "store", tmp_path, seed=1)
    with raises(UserError, tmp_path / "store", "--force"):
        RECIPES["frappe"].prepare(tmp_path, tmp_path / "store")


@pytest.mark.parametrize(("name", "write"), [("frappe", test_frappe.write), ("kdd2012", test_kdd2012.write)])
def test_an_unfinished_store_is_finished(tmp_path: Path, name: str, write: object) -> None:
    write(tmp_path)  # type: ignore[operator]  # functions of two modules
    with pytest.raises(KeyboardInterrupt):
        store_for(name, tmp_path / "store", tmp_path, observer=test_kdd2012.interrupt_at(1))
    store = store_for(name, tmp_path / "store", tmp_path)
    assert decoded(store).equals(decoded(store_for(name, tmp_path / "whole", tmp_path)))


def test_unknown_settings() -> None:
    with pytest.raises(ConfigError, match=r"data\.counts_from"):
        RECIPES["frappe"].config(counts_from="test")  # type: ignore[arg-type]  # what a user may type
    with pytest.raises(ConfigError, match=r"data\.min_cuont.*data\.min_count"):
        RECIPES["frappe"].config(settings={"data.min_cuont": 2})


# --- the real files -------------------------------------------------------------------------------------------


@pytest.mark.dataset
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_facts_of_the_real_files(recipe: Recipe, tmp_path: Path) -> None:
    home = Path(os.environ.get(DATA_HOME, Path(__file__).parents[3] / "shared" / "data"))
    missing = recipe.missing_files(home)
    if missing:
        pytest.skip(f"{', '.join(file.name for file in missing)} not found in {home}")
    facts = recipe.facts
    store = recipe.prepare(home, tmp_path / "store", counts_from="all")
    assert tuple(store.n_rows_of.values()) == facts.parts
    assert store.encoder.schema.field_names == facts.fields
    assert n_categories(store.encoder) == facts.categories
    target = store.encoder.schema.target
    assert target is not None
    assert target.task == facts.task
    if isinstance(recipe, TableRecipe):
        smallest = 4 if facts.task == "regression" else 1
        assert recipe.table(home).select((pl.col(facts.target) >= smallest).sum()).item() == facts.positives
    else:
        assert sum(int(rows.target_R.sum()) for rows in store.chunks()) == facts.positives
    shutil.rmtree(tmp_path / "store")

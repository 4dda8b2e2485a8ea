"""Data sets: recipes from published files to tables and stores, and synthetic tables with planted dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from fielddep.datasets import avazu, criteo, diabetes130, flights, frappe, kdd2012, ml_rating, ml_tag, synthetic
from fielddep.datasets.recipe import CountsFrom, Recipe, StreamRecipe, TableRecipe
from fielddep.errors import StoreError, UserError
from fielddep.observer import Observer
from fielddep.wording import did_you_mean, format_bytes

if TYPE_CHECKING:
    from fielddep.store.store import Store

_ALL: tuple[Recipe, ...] = (
    kdd2012.RECIPE,
    avazu.RECIPE,
    criteo.RECIPE,
    ml_tag.RECIPE,
    ml_rating.RECIPE,
    frappe.RECIPE,
    ml_tag.PART_RECIPE,
    diabetes130.RECIPE,
    flights.RECIPE,
    synthetic.RECIPE,
)
RECIPES: Mapping[str, Recipe] = {recipe.facts.name: recipe for recipe in _ALL}
"""The six data sets of the paper, largest first, then the others."""


def find_recipe(name: str) -> Recipe:
    """The recipe with this name.

    Raises:
        UserError: there is none.
    """
    if name not in RECIPES:
        raise UserError(f"no data set is called {name!r}; {did_you_mean(name, RECIPES, what='data sets')}")
    return RECIPES[name]


def load_table(name: str, raw: str | Path | None = None, *, seed: int = 0) -> pl.DataFrame:
    """A small data set in memory: fields, target, and the part of every row in the column `split`.

    Train on it with the settings of its recipe: `fit(load_table(name), find_recipe(name).config())`.

    Args:
        name: one of `RECIPES`.
        raw: folder with the published files; default: $FIELDDEP_DATA.
        seed: seed of the split and of sampled negatives.

    Raises:
        UserError: the name is unknown, files are missing or malformed, or the data set is too large.
    """
    recipe = find_recipe(name)
    if not isinstance(recipe, TableRecipe):
        size = format_bytes(sum(file.n_bytes for file in recipe.versions[0]))
        raise UserError(
            f"{name} is too large for memory ({recipe.facts.rows:,} rows, {size}). Make a store with "
            f"`fielddep data prepare {name}`"
        )
    return recipe.table(raw, seed=seed)


def store_for(
    name: str,
    folder: str | Path,
    raw: str | Path | None = None,
    *,
    counts_from: CountsFrom = "train",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
) -> Store:
    """The store of a data set in a folder, prepared or resumed if necessary.

    Raises:
        UserError: as in `Recipe.prepare`.
        StoreError: the folder holds a store with other settings.
    """
    from fielddep.store.folder import STORE
    from fielddep.store.store import Store

    recipe, folder = find_recipe(name), Path(folder)
    chosen: dict[str, Any] = {"counts_from": counts_from, "seed": seed, "settings": settings}
    state = STORE.state(folder)
    if state != "finished":
        resumable, begun = isinstance(recipe, StreamRecipe), state == "unfinished"
        return recipe.prepare(
            raw, folder, **chosen, force=begun and not resumable, resume=begun and resumable, observer=observer
        )
    store, wanted = Store.open(folder), recipe.config(**chosen)
    if (store.config.data, store.config.split) != (wanted.data, wanted.split):
        raise StoreError(
            f"expected {name} with the given settings in {folder}, found a store with other settings. Choose another "
            "folder, or remove this one"
        )
    return store

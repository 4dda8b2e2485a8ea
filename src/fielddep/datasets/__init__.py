"""Data sets: recipes from published files to tables and stores, and synthetic tables with planted dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from fielddep.datasets import avazu, criteo, diabetes130, flights, frappe, kdd2012, ml_rating, ml_tag, synthetic
from fielddep.datasets.flights import load_flights
from fielddep.datasets.recipe import CountsFrom, Facts, Recipe, StreamRecipe, TableRecipe
from fielddep.datasets.synthetic import SyntheticTable, generate, generate_chunks
from fielddep.errors import StoreError, UserError
from fielddep.observer import Observer
from fielddep.wording import did_you_mean, format_bytes

if TYPE_CHECKING:
    from fielddep.store.store import Store

__all__ = [
    "RECIPES",
    "Facts",
    "Recipe",
    "SyntheticTable",
    "find_recipe",
    "generate",
    "generate_chunks",
    "load_flights",
    "load_table",
    "store_for",
]

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
    """The recipe of that name.

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
        raw: folder of the raw files; default: the one that FIELDDEP_DATA names.
        seed: seed of the split, and of negatives where they are sampled.

    Raises:
        UserError: an unknown name, files that are missing or malformed, or a data set too large for this.
    """
    recipe = find_recipe(name)
    if not isinstance(recipe, TableRecipe):
        size = format_bytes(sum(file.n_bytes for file in recipe.versions[0]))
        raise UserError(
            f"{name} is streamed and never held in memory ({recipe.facts.rows:,} rows, {size}); make a store "
            f"with `fielddep data prepare {name}` and use that"
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
    """The store of a data set in a folder; prepared if it does not exist, resumed if it is unfinished.

    Raises:
        UserError: as `Recipe.prepare`.
        StoreError: the folder holds a store of other settings.
    """
    from fielddep.store.folder import STORE
    from fielddep.store.store import Store

    recipe, folder = find_recipe(name), Path(folder)
    chosen: dict[str, Any] = {"counts_from": counts_from, "seed": seed, "settings": settings}
    state = STORE.state(folder)
    if state != "finished":
        resume = isinstance(recipe, StreamRecipe)
        begun = state == "unfinished"
        return recipe.prepare(
            raw, folder, **chosen, force=begun and not resume, resume=begun and resume, observer=observer
        )
    store, wanted = Store.open(folder), recipe.config(**chosen)
    if (store.config.data, store.config.split) != (wanted.data, wanted.split):
        raise StoreError(
            f"expected the store of {name} with these settings in {folder}, found one of other settings; choose "
            "another folder, or remove it"
        )
    return store

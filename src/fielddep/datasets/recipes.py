"""All recipes by name, and what they make: tables in memory and stores."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from fielddep.datasets import avazu, criteo, diabetes130, flights, frappe, kdd2012, ml_rating, ml_tag, synthetic_recipe
from fielddep.datasets.base import CountsFrom, Recipe, StreamRecipe, TableRecipe
from fielddep.datasets.raw_files import shown_bytes
from fielddep.errors import StoreError, UserError

if TYPE_CHECKING:
    from fielddep.data.store.store import Store
    from fielddep.data.streaming.encode import Progress

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
    synthetic_recipe.RECIPE,
)
RECIPES: Mapping[str, Recipe] = {recipe.facts.name: recipe for recipe in _ALL}
"""The paper's six data sets first, the largest of them first, then the others."""


def find_recipe(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        UserError: there is none; names the nearest.
    """
    if name not in RECIPES:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), RECIPES, n=1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"expected a data set ({', '.join(RECIPES)}), given {name!r}{advice}")
    return RECIPES[name]


def load_table(name: str, raw: str | Path | None = None, *, seed: int = 0) -> pl.DataFrame:
    """A small data set in memory: fields, target, and the part of every row in the column `split`.

    Train on it with the settings of its recipe: `fit_table(load_table(name), find_recipe(name).config())`.

    Args:
        name: one of `RECIPES`.
        raw: folder of the raw files; default: the one that FIELDDEP_DATA names.
        seed: seed of the split, and of negatives where they are sampled.

    Raises:
        UserError: an unknown name, files that are missing or malformed, or a data set too large for this.
    """
    recipe = find_recipe(name)
    if not isinstance(recipe, TableRecipe):
        size = shown_bytes(sum(file.n_bytes for file in recipe.versions[0]))
        raise UserError(
            f"{name} is read in portions and never held in memory ({recipe.facts.rows:,} rows, {size}); make a store "
            f"of it with `fielddep data prepare {name}` and use the store"
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
    progress: Callable[[Progress], None] | None = None,
) -> Store:
    """The store of a data set in a folder; prepared if it is not there, gone on with if it is unfinished.

    Raises:
        UserError: as `Recipe.prepare`.
        StoreError: the folder holds a store of other settings.
    """
    from fielddep.data.store.store import Store
    from fielddep.data.streaming.store_folder import STORE

    recipe, folder = find_recipe(name), Path(folder)
    chosen: dict[str, Any] = {"counts_from": counts_from, "seed": seed, "settings": settings}
    state = STORE.state(folder)
    if state != "finished":
        resume = isinstance(recipe, StreamRecipe)
        begun = state == "unfinished"
        return recipe.prepare(
            raw, folder, **chosen, force=begun and not resume, resume=begun and resume, progress=progress
        )
    store, wanted = Store.open(folder), recipe.config(**chosen)
    if (store.config.data, store.config.split) != (wanted.data, wanted.split):
        raise StoreError(
            f"expected the store of {name} with these settings in {folder}, found one of other settings; choose "
            "another folder, or remove it"
        )
    return store

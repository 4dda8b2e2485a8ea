"""Data sets: recipes from published files to stores, and synthetic tables with planted dependencies."""

from fielddep.datasets.base import Recipe
from fielddep.datasets.facts import Facts
from fielddep.datasets.flights import load_flights
from fielddep.datasets.recipes import RECIPES, find_recipe, load_table, store_for
from fielddep.datasets.synthetic import SyntheticTable, generate, generate_batches

__all__ = [
    "RECIPES",
    "Facts",
    "Recipe",
    "SyntheticTable",
    "find_recipe",
    "generate",
    "generate_batches",
    "load_flights",
    "load_table",
    "store_for",
]

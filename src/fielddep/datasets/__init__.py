"""Data sets: a real one with stated facts, and synthetic ones with planted dependencies."""

from fielddep.datasets.flights import load_flights
from fielddep.datasets.synthetic import SyntheticTable, generate, generate_batches

__all__ = ["SyntheticTable", "generate", "generate_batches", "load_flights"]

"""Miniatures of published files, and what a store made from them holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from fielddep.datasets.recipe import Recipe
from fielddep.encoding.encoder import Encoder
from fielddep.errors import TableError
from fielddep.store.store import PART_NAMES, Store
from tests.helpers import raises


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Write a text file, and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def decoded(store: Store) -> pl.DataFrame:
    """All rows, with values in place of ids, the target and the part."""
    rows = store.read(0, store.n_rows)
    fields = {
        field.name: field_encoder.codec.labels().gather(rows.ids_RF[:, i])
        for i, (field, field_encoder) in enumerate(
            zip(store.encoder.schema.fields, store.encoder.field_encoders, strict=True)
        )
    }
    parts = [PART_NAMES[mark] for mark in store.parts(0, store.n_rows)]
    return pl.DataFrame({**fields, "target": rows.target_R, "part": parts})


def n_categories(encoder: Encoder) -> int:
    """Ids that occur in the counted rows."""
    return sum(int((field_encoder.counts > 0).sum()) for field_encoder in encoder.field_encoders)


def refuses(recipe: Recipe, raw: Path, *facts: object) -> None:
    """The recipe refuses the files with these facts and leaves no store behind."""
    out = raw / "refused-store"
    with raises(TableError, *facts):
        recipe.prepare(raw, out)
    assert not out.exists() or not list(out.iterdir())


Change = Callable[[list[str]], None]
"""Spoils the lines of a good file."""


def set_line(number: int, text: str) -> Change:
    """Replaces a line, counted from 1."""

    def change(lines: list[str]) -> None:
        lines[number - 1] = text

    return change

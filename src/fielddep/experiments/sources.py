"""Sources of a search or comparison: a store, or a table or data set that is encoded into a store once.

All models then read the same ids of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fielddep.config import Config
from fielddep.data.readers import Source
from fielddep.data.store.store import Store, is_store
from fielddep.data.streaming.encode import Progress, encode_store
from fielddep.data.streaming.row_stream import check_same_sources, open_rows
from fielddep.data.streaming.store_folder import STORE
from fielddep.datasets import RECIPES, find_recipe
from fielddep.datasets.recipes import store_for
from fielddep.errors import ConfigError, StoreError, TableError
from fielddep.prepared import with_store_settings

GLOB = "*?["


@dataclass(frozen=True, kw_only=True)
class NamedStore:
    """Encoded rows, and what to call them in tables."""

    dataset: str
    store: Store


def open_source(
    source: str,
    folder: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    raw: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> NamedStore:
    """The store that a word of the command line means.

    Args:
        source: folder of a store; name of a data set with a recipe; else a table (file, folder or glob).
        folder: where the store of a table or data set is made, or was made by an earlier call.
        settings: dotted settings of data and split.
        raw: folder of a data set's published files.
        progress: told how far an encoding is.

    Raises:
        UserError: nothing of that name is there, it cannot be read, or `folder` holds a store of something else.
    """
    settings = dict(settings or {})
    _check_sections(settings)
    if is_store(source) or STORE.state(Path(source)) == "unfinished":
        store = Store.open(source)
        with_store_settings(Config().replace(settings), store)
        return NamedStore(dataset=Path(source).resolve().name, store=store)
    if source in RECIPES:
        return NamedStore(dataset=source, store=store_for(source, folder, raw, settings=settings, progress=progress))
    if not Path(source).exists() and not set(GLOB) & set(source):
        raise _no_source(source)
    config = Config().replace(settings)
    return NamedStore(dataset=Path(source).stem, store=_table_store(source, config, folder, progress))


def _check_sections(settings: Mapping[str, Any]) -> None:
    for path in settings:
        if not path.startswith(("data.", "split.")):
            raise ConfigError(f"rows are encoded with settings of data and split only; given {path}")


def _no_source(source: str) -> TableError:
    advice = ""
    if not {"/", "."} & set(source):
        try:
            find_recipe(source)
        except ValueError as error:
            advice = f" ({error})"
    return TableError(f"expected a store, a table or the name of a data set; there is no {source}{advice}")


def _table_store(source: Source, config: Config, folder: Path, progress: Callable[[Progress], None] | None) -> Store:
    """The store of a table, made if it is not there."""
    state = STORE.state(folder)
    if state != "finished":
        return encode_store(source, config, folder, resume=state == "unfinished", progress=progress)
    store = Store.open(folder)
    if (store.config.data, store.config.split) != (config.data, config.split):
        raise StoreError(
            f"{folder} holds the rows of {source} encoded with other settings of data and split; give the same, or "
            "choose another --out"
        )
    check_same_sources([dict(facts) for facts in store.sources], open_rows(source, config.data).sources)
    return store

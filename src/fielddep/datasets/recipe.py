"""Recipes: facts about a data set, and how its published files become a store.

Tests verify the facts if the files are available. Files are prepared exactly as in the paper. `StreamRecipe` is for
files of any size, `TableRecipe` for tables built in memory.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from fielddep.config.settings import Config
from fielddep.datasets.raw import RawFile, RawFiles, find_raw_files
from fielddep.datasets.sampling import SPLIT
from fielddep.errors import TableError
from fielddep.observer import Observer
from fielddep.tables.readers import Source
from fielddep.tables.row_stream import RowStream

if TYPE_CHECKING:
    from fielddep.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about a data set.

    Attributes:
        name: its name on the command line.
        title: what it is about.
        task: binary or regression.
        target: the column to predict.
        fields: the columns a model sees.
        rows: rows, including sampled negatives.
        parts: rows for training, validation and test.
        positives: rows of class 1; for ratings, those of 4 and more, as the paper counts them.
        categories: ids in use, including missing and rare ones, with `counts_from="all"`.
        page: where to get the files.
        terms: their terms of use.
        note: anything else worth knowing.
    """

    name: str
    title: str
    task: Literal["binary", "regression"]
    target: str
    fields: tuple[str, ...]
    rows: int
    parts: tuple[int, int, int]
    positives: int
    categories: int
    page: str
    terms: str
    note: str = ""


DATA_HOME = "FIELDDEP_DATA"
"""Environment variable with the folder of published files."""

CountsFrom = Literal["train", "all"]


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """Facts about a data set, and how its files become a store.

    Attributes:
        facts: what is known about it.
        versions: alternative sets of files; the first complete one is used. Empty if no files are needed.
        archives: zip archives that may hold the files.
        settings: dotted settings of the encoding, such as minimum counts.
        advice: what to do with the files after the download.
    """

    facts: Facts
    versions: tuple[tuple[RawFile, ...], ...] = ()
    archives: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""

    def config(
        self, *, counts_from: CountsFrom = "train", seed: int = 0, settings: Mapping[str, Any] | None = None
    ) -> Config:
        """Settings of the encoding.

        Args:
            counts_from: rows whose values are counted; the paper's code counts all.
            seed: seed of the split and of sampled negatives.
            settings: dotted settings that override those of the recipe.
        """
        facts = self.facts
        values = {
            "data.target": facts.target,
            "data.task": facts.task,
            "data.fields": list(facts.fields),
            "data.kinds": dict.fromkeys(facts.fields, "categorical"),
            "data.crosses": "none",
            # As in the paper, and statements of forty million rows are large; the accuracy benchmark turns it on.
            "data.evidence": "none",
            "data.counts_from": counts_from,
            "split.seed": seed,
        }
        return Config().replace({**values, **self._split_settings(), **self.settings, **(settings or {})})

    def prepare(
        self,
        raw: str | Path | None,
        out: str | Path,
        *,
        counts_from: CountsFrom = "train",
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        force: bool = False,
        resume: bool = False,
        observer: Observer | None = None,
    ) -> Store:
        """Make a store from the published files.

        Args:
            raw: folder with the files; default: $FIELDDEP_DATA.
            out: folder for the store.
            counts_from: as in `config`.
            seed: as in `config`.
            settings: as in `config`.
            force: replace an existing store.
            resume: resume an unfinished store; only a `StreamRecipe` can.
            observer: is told about progress.

        Raises:
            UserError: files are missing or malformed, or the folder must not be written to.
        """
        # Imported here because they import torch.
        from fielddep.store.build import build_store
        from fielddep.store.folder import STORE

        STORE.check(Path(out), force=force, resume=resume)
        config = self.config(counts_from=counts_from, seed=seed, settings=settings)
        source = self._source(self.find(raw), seed)
        return build_store(source, config, out, force=force, resume=resume, observer=observer)

    @property
    def file_names(self) -> str:
        """Every version with its files and their sizes, as text; empty if no files are needed."""
        return ", or instead ".join(", ".join(map(str, version)) for version in self.versions)

    def missing_files(self, raw: str | Path | None = None) -> list[RawFile]:
        """The files that are missing from the most complete version; empty if it is complete."""
        versions = self._found(raw)
        if not versions or any(len(found) == len(version) for version, found in versions):
            return []
        version, found = max(versions, key=lambda version: len(version[1]))
        return [file for file in version if file.name not in found]

    def find(self, raw: str | Path | None = None) -> RawFiles:
        """The files of the first complete version.

        Raises:
            TableError: none is. Lists the missing files, their sizes, terms and where to get them.
        """
        if not self.versions:
            return {}
        for version, found in self._found(raw):
            if len(found) == len(version):
                return found
        raise self._missing_error(raw)

    @abstractmethod
    def _source(self, files: RawFiles, seed: int) -> Source:
        """What the encoding reads."""

    @abstractmethod
    def _split_settings(self) -> dict[str, Any]:
        """How rows are split."""

    def _found(self, raw: str | Path | None) -> list[tuple[tuple[RawFile, ...], RawFiles]]:
        folder = raw_folder(raw)
        if folder is None:
            return [(version, {}) for version in self.versions]
        places = (self.facts.name, *(Path(archive).stem for archive in self.archives))
        return [
            (version, find_raw_files(version, folder, subfolders=places, archives=self.archives))
            for version in self.versions
        ]

    def _missing_error(self, raw: str | Path | None) -> TableError:
        facts, folder = self.facts, raw_folder(raw)
        archives = f" or in {' or '.join(self.archives)} there" if self.archives else ""
        missing = ", ".join(file.name for file in self.missing_files(raw))
        advice = f"; {self.advice}" if self.advice else ""
        where = f"in {folder}, {folder / facts.name}{archives}" if folder else "in a folder, but none is given"
        return TableError(
            f"expected the files of {facts.name} {where}: {self.file_names}. Not found: {missing}. Get them from "
            f"{facts.page} (terms: {facts.terms}){advice}. Then give their folder as --raw DIR, or set {DATA_HOME}"
        )


@dataclass(frozen=True, kw_only=True)
class StreamRecipe(Recipe):
    """A data set of any size, read chunk by chunk.

    Attributes:
        open: the rows of the files, with target and fields as columns.
    """

    open: Callable[[RawFiles], RowStream]

    def _source(self, files: RawFiles, seed: int) -> RowStream:
        return self.open(files)

    def _split_settings(self) -> dict[str, Any]:
        """Shares that give exactly the paper's parts if the files are complete."""
        _, validation, test = self.facts.parts
        return {"split.validation": validation / self.facts.rows, "split.test": test / self.facts.rows}


@dataclass(frozen=True, kw_only=True)
class TableRecipe(Recipe):
    """A data set built in memory.

    Attributes:
        build: fields, target and the column of parts (`split`), from files and a seed.
    """

    build: Callable[[RawFiles, int], pl.DataFrame]

    def table(self, raw: str | Path | None = None, *, seed: int = 0) -> pl.DataFrame:
        """Fields, target, groups if the settings name some, and the column `split`: train, validation or test.

        Raises:
            UserError: files are missing or malformed.
        """
        groups = filter(None, [self.settings.get("split.group")])
        return self.build(self.find(raw), seed).select(*self.facts.fields, self.facts.target, *groups, SPLIT)

    def _source(self, files: RawFiles, seed: int) -> pl.DataFrame:
        return self.build(files, seed)

    def _split_settings(self) -> dict[str, Any]:
        return {"split.method": "column", "split.column": SPLIT}


def raw_folder(raw: str | Path | None) -> Path | None:
    """The given folder, or else $FIELDDEP_DATA; None if there is neither."""
    given = raw or os.environ.get(DATA_HOME)
    return Path(given).expanduser() if given else None

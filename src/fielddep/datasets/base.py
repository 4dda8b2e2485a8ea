"""Recipes: what is known of a data set, and how its published files become a store.

A recipe states facts, which the tests verify wherever the files are at hand, and prepares the files exactly as the
paper did. `StreamRecipe` is for files of any size, `TableRecipe` for those that are built in memory.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from fielddep.config import Config
from fielddep.data.readers import Source
from fielddep.data.streaming.row_stream import RowStream
from fielddep.datasets.facts import Facts
from fielddep.datasets.raw_files import Found, RawFile, find_raw_files
from fielddep.datasets.sampling import SPLIT
from fielddep.errors import TableError

if TYPE_CHECKING:
    from fielddep.data.store.store import Store
    from fielddep.data.streaming.encode import Progress

DATA_HOME = "FIELDDEP_DATA"
"""Environment variable that names the folder of raw files."""

CountsFrom = Literal["train", "all"]


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """Facts of a data set and the way from its files to a store.

    Attributes:
        facts: what is known of it.
        versions: the files it is made from; the first version of which all files are at hand is taken. None where
            no files are needed.
        archives: zip archives in which the files may lie.
        settings: dotted settings of the encoding, such as minimum counts.
        advice: what to do with the files after downloading them.
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
            counts_from: rows whose values are counted; "all" as the paper's code does.
            seed: seed of the split, and of negatives where they are sampled.
            settings: dotted settings that overrule those of the recipe.
        """
        facts = self.facts
        values = {
            "data.target": facts.target,
            "data.task": facts.task,
            "data.fields": list(facts.fields),
            "data.kinds": dict.fromkeys(facts.fields, "categorical"),
            "data.crosses": "none",
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
        progress: Callable[[Progress], None] | None = None,
    ) -> Store:
        """Make a store from the published files.

        Args:
            raw: folder of the files; None looks into the one that FIELDDEP_DATA names.
            out: folder of the store.
            counts_from: as in `config`.
            seed: as in `config`.
            settings: as in `config`.
            force: replace a store that is there.
            resume: go on with an unfinished store. Only a `StreamRecipe` can.
            progress: told how far the work is.

        Raises:
            UserError: files are missing or malformed, or the folder must not be written to.
        """
        # Only here, as torch comes with them.
        from fielddep.data.streaming.encode import encode_store
        from fielddep.data.streaming.store_folder import STORE

        STORE.check(Path(out), force=force, resume=resume)
        config = self.config(counts_from=counts_from, seed=seed, settings=settings)
        source = self._source(self.find(raw), seed)
        return encode_store(source, config, out, force=force, resume=resume, progress=progress)

    def missing_files(self, raw: str | Path | None = None) -> list[RawFile]:
        """The files that are not at hand, of the version of which most are; empty where one is complete."""
        lacking = [[file for file in version if file.name not in found] for version, found in self._found(raw)]
        if not all(lacking):
            return []
        n_found = [len(version) - len(files) for version, files in zip(self.versions, lacking, strict=True)]
        return lacking[n_found.index(max(n_found))] if lacking else []

    def find(self, raw: str | Path | None = None) -> Found:
        """The files of the first version that is complete.

        Raises:
            TableError: none is; says which files are missing, how large they are, where to get them and on what terms.
        """
        for version, found in self._found(raw):
            if len(found) == len(version):
                return found
        if not self.versions:
            return {}
        raise self._missing_error(raw)

    @abstractmethod
    def _source(self, found: Found, seed: int) -> Source:
        """What the encoding reads."""

    @abstractmethod
    def _split_settings(self) -> dict[str, Any]:
        """How rows are shared out."""

    def _found(self, raw: str | Path | None) -> list[tuple[tuple[RawFile, ...], Found]]:
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
        wanted = ", or instead ".join(", ".join(map(str, version)) for version in self.versions)
        archives = f" or in {' or '.join(self.archives)} there" if self.archives else ""
        lacking = ", ".join(file.name for file in self.missing_files(raw))
        where = f"in {folder}, {folder / facts.name}{archives}" if folder else "in a folder, but none is given"
        return TableError(
            f"expected the files of {facts.name} {where}: {wanted}. Not found: {lacking}. Get them from {facts.page} "
            f"(terms: {facts.terms})" + (f"; {self.advice}" if self.advice else "") + ". Then name their folder: "
            f"--raw DIR, or {DATA_HOME}=DIR in the environment"
        )


@dataclass(frozen=True, kw_only=True)
class StreamRecipe(Recipe):
    """A data set of any size, read in portions.

    Attributes:
        open: the rows of the files, with target and fields as columns.
    """

    open: Callable[[Found], RowStream]

    def _source(self, found: Found, seed: int) -> RowStream:
        return self.open(found)

    def _split_settings(self) -> dict[str, Any]:
        """Shares that give exactly the paper's parts when the files are whole."""
        _, validation, test = self.facts.parts
        return {"split.validation": validation / self.facts.rows, "split.test": test / self.facts.rows}


@dataclass(frozen=True, kw_only=True)
class TableRecipe(Recipe):
    """A data set that is built in memory.

    Attributes:
        build: fields, target and the column of parts (`split`), from files and a seed.
    """

    build: Callable[[Found, int], pl.DataFrame]

    def table(self, raw: str | Path | None = None, *, seed: int = 0) -> pl.DataFrame:
        """Fields, target and the column `split`, which says train, validation or test of every row.

        Raises:
            UserError: files are missing or malformed.
        """
        return self.build(self.find(raw), seed).select(*self.facts.fields, self.facts.target, SPLIT)

    def _source(self, found: Found, seed: int) -> pl.DataFrame:
        return self.build(found, seed)

    def _split_settings(self) -> dict[str, Any]:
        return {"split.method": "column", "split.column": SPLIT}


def raw_folder(raw: str | Path | None) -> Path | None:
    """The folder that is given, else the one that FIELDDEP_DATA names; None where there is neither."""
    given = raw or os.environ.get(DATA_HOME)
    return Path(given).expanduser() if given else None

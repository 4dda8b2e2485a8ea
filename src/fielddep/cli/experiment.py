"""What the commands of experiments (search, compare, ablate) share: their settings, their rows, how they go on."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fielddep.cli.console import say
from fielddep.cli.encode import shown
from fielddep.cli.options import INTERRUPTED, said_again
from fielddep.coercion import parse_assignment

if TYPE_CHECKING:
    from fielddep.experiments.experiment_folder import Experiment
    from fielddep.experiments.sources import NamedStore

_DATA = ("data.", "split.")


def split_settings(
    set_: list[str] | None, target: str | None, task: str | None, found: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of data and split, and all others: those found in a file, overruled by those of the command line."""
    named = {"data.target": target, "data.task": task}
    given = {**(found or {}), **dict(map(parse_assignment, set_ or []))}
    given |= {path: value for path, value in named.items() if value is not None}
    data = {path: value for path, value in given.items() if path.startswith(_DATA)}
    return data, {path: value for path, value in given.items() if path not in data}


@contextlib.contextmanager
def experiment_rows(
    source: str, out: Path, kind: Experiment, *, settings: dict[str, Any], raw: Path | None, quiet: bool
) -> Iterator[NamedStore]:
    """Keep the folder of an experiment for this process, with the rows of the source; they are encoded once."""
    from fielddep.experiments.experiment_folder import STORE_FOLDER, working_in
    from fielddep.experiments.sources import open_source

    with working_in(out, kind):
        with shown(quiet) as progress:
            named = open_source(source, out / STORE_FOLDER, settings=settings, raw=raw, progress=progress)
        yield named


@contextlib.contextmanager
def going_on(
    words: list[str],
    kept: str,
    options: Mapping[str, object],
    assignments: list[str] | None,
    flags: Mapping[str, bool],
) -> Iterator[None]:
    """End an interrupted command in words: what is kept, and the command that goes on.

    Args:
        words: command, source and folder.
        kept: what is not lost.
        options: all others of the call.
        assignments: settings of the call.
        flags: switches that were given.
    """
    try:
        yield
    except KeyboardInterrupt:
        command = shlex.join(["fielddep", *words, *said_again(options, assignments, flags)])
        say(f"interrupted; {kept} are kept. Go on with\n  {command}")
        raise typer.Exit(INTERRUPTED) from None

"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.config.decode import parse_assignment
from fielddep.config.settings import MODEL_CONFIGS, Config, DataConfig, read_toml
from fielddep.errors import ConfigError, TableError

if TYPE_CHECKING:
    from fielddep.artifacts.bundle import Bundle
    from fielddep.artifacts.predictor import Predictor
    from fielddep.store.store import Store

TableArgument = Annotated[str, typer.Argument(help="A table: file, folder or glob.", metavar="TABLE")]
SourceArgument = Annotated[
    str, typer.Argument(help="A table (file, folder or glob) or a store that encode made.", metavar="TABLE")
]
RunArgument = Annotated[Path, typer.Argument(help="A run, or a bundle alone.", metavar="RUN")]
TargetOption = Annotated[str | None, typer.Option("--target", help="Column to predict.", metavar="COL")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="Settings as TOML.", metavar="FILE")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, such as model.d_embed=20.", metavar="KEY=VALUE")
]
ReadOption = Annotated[
    list[str] | None, typer.Option("--set", help="How to read the table, such as data.delimiter=;", metavar="KEY=VALUE")
]
DeviceOption = Annotated[str, typer.Option("--device", help="Torch device.", metavar="DEVICE")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

TaskOption = Annotated[
    str | None, typer.Option("--task", help="auto, binary, multiclass or regression.", metavar="TASK")
]

ModelOption = Annotated[str | None, typer.Option("--model", help=f"Model: {', '.join(MODEL_CONFIGS)}.", metavar="NAME")]

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

_READING = ("data.format", "data.delimiter", "data.encoding")


def build_config(file: Path | None, assignments: list[str] | None, named: dict[str, Any]) -> Config:
    """Settings from a file, overridden by `--set`, overridden by options such as `--target`.

    Args:
        file: TOML.
        assignments: texts such as `model.d_embed=20`.
        named: dotted settings; those that are None were not given.
    """
    config = Config() if file is None else Config.from_toml(file)
    return config.replace(_assigned(assignments, named))


def build_store_config(store: Store, file: Path | None, assignments: list[str] | None, named: dict[str, Any]) -> Config:
    """Settings for a store: those of data and split are its own, the others as `build_config` has them.

    Raises:
        ConfigError: when a setting of data or split is given and is not that of the store.
    """
    from fielddep.training.prepare import store_conflict

    given = {} if file is None else read_toml(file)
    Config().replace(given)  # refuses what is no setting
    given |= _assigned(assignments, named)
    own = replace(Config(), data=store.config.data, split=store.config.split)
    config = own.replace(given)
    for path, value in given.items():
        section, name = path.split(".")[:2]
        settings, settled = getattr(config, section), getattr(own, section)
        if section in ("data", "split") and getattr(settings, name) != getattr(settled, name):
            raise store_conflict(store, f"{section}.{name}", value)
    return config


def _assigned(assignments: list[str] | None, named: dict[str, Any]) -> dict[str, Any]:
    values = dict(map(parse_assignment, assignments or []))
    return values | {path: value for path, value in named.items() if value is not None}


def find_store(source: str) -> Store | None:
    """The store that a path leads to, or None where it is a table.

    Raises:
        StoreError: for a store that is damaged or unfinished.
    """
    from fielddep.store.folder import STORE
    from fielddep.store.store import Store, is_store

    stored = is_store(source) or STORE.state(Path(source)) == "unfinished"
    return Store.open(source) if stored else None


def refuse_store(source: str, command: str) -> None:
    """Say what a command wants instead of a store, which holds ids and no longer the cells of a table."""
    from fielddep.store.store import is_store

    if is_store(source):
        raise TableError(
            f"{command} looks at the values of a table, and {source} is a store of encoded rows; give the table that "
            "it was made from"
        )


def open_predictor(run: Path, device: str) -> Predictor:
    """The model of a run on a device."""
    from fielddep.artifacts.predictor import Predictor
    from fielddep.artifacts.run import resolve_bundle

    return Predictor(resolve_bundle(run), device=device)


def reading_of(bundle: Bundle, assignments: list[str] | None) -> DataConfig:
    """How to read a table for a model: as its training table was read, unless the options differ."""
    values = dict(map(parse_assignment, assignments or []))
    for path in values:
        if path not in _READING:
            raise ConfigError(f"only {', '.join(_READING)} can be set for a trained model; given {path}")
    from fielddep.artifacts.predictor import read_options

    return read_options(bundle, bundle.config.replace(values).data)


COMMAND_LINE: ContextVar[Sequence[str]] = ContextVar("command line", default=())
"""Words of the command that is running."""


def resume_command(*flags: str) -> str:
    """The command line that continues, or with `--force` repeats, the command that is running."""
    words = [word for word in COMMAND_LINE.get() if word not in ("--force", "--resume")]
    return shlex.join(["fielddep", *words, *flags])

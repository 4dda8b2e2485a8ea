"""Options that several commands share, how they become settings, and how a command is resumed."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.console import log
from fielddep.config import NETWORKS
from fielddep.config.data import DataConfig
from fielddep.config.decode import parse_assignment
from fielddep.config.settings import Config, read_toml
from fielddep.errors import BundleError, ConfigError, TableError

if TYPE_CHECKING:
    from fielddep.artifacts.bundle import Bundle
    from fielddep.artifacts.predictor import Predictor
    from fielddep.store.store import Store

TableArgument = Annotated[str, typer.Argument(help="Table: a file, folder or glob.", metavar="TABLE")]
SourceArgument = Annotated[
    str, typer.Argument(help="Table (a file, folder or glob), or a store made by encode.", metavar="TABLE")
]
RunArgument = Annotated[Path, typer.Argument(help="Run made by fit, or a bundle.", metavar="RUN")]
RunOutOption = Annotated[Path, typer.Option("--out", help="Folder for the run.", metavar="RUN")]
StoreOutOption = Annotated[Path, typer.Option("--out", help="Folder for the store.", metavar="STORE")]
TargetOption = Annotated[str | None, typer.Option("--target", help="Column to predict.", metavar="COL")]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="auto, binary, multiclass or regression.", metavar="TASK")
]
ModelOption = Annotated[str | None, typer.Option("--model", help=f"Model: {', '.join(NETWORKS)}.", metavar="NAME")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="TOML file with settings.", metavar="FILE")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, such as model.d_embed=20. Repeatable.", metavar="KEY=VALUE"),
]
DataSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, such as data.min_count=5. Repeatable.", metavar="KEY=VALUE"),
]
ReadOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="How to read TABLE, such as data.delimiter=;. Repeatable.", metavar="KEY=VALUE"),
]
DeviceOption = Annotated[str, typer.Option("--device", help="Torch device, such as cuda.", metavar="DEVICE")]
RawOption = Annotated[
    Path | None,
    typer.Option(
        "--raw", "--data-home", help="Folder with the published files. Default: $FIELDDEP_DATA.", metavar="DIR"
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing run or store.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume after an interrupt.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print only results and warnings.")]

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

_READING = ("data.format", "data.delimiter", "data.encoding")


def assigned(assignments: list[str] | None, named: dict[str, Any] | None = None) -> dict[str, Any]:
    """Dotted settings from `--set`, overridden by options such as `--target` unless they are None."""
    values = dict(map(parse_assignment, assignments or []))
    return values | {path: value for path, value in (named or {}).items() if value is not None}


def build_config(file: Path | None, assignments: list[str] | None, named: dict[str, Any]) -> Config:
    """Settings from a file, overridden by `assigned`."""
    config = Config() if file is None else Config.from_toml(file)
    return config.replace(assigned(assignments, named))


def build_store_config(store: Store, file: Path | None, assignments: list[str] | None, named: dict[str, Any]) -> Config:
    """Like `build_config`, but with the store's own settings of data and split.

    Raises:
        ConfigError: a given setting of data or split differs from the store's.
    """
    from fielddep.training.prepare import store_conflict

    given = {} if file is None else read_toml(file)
    Config().replace(given)  # refuses unknown settings
    given |= assigned(assignments, named)
    own = replace(Config(), data=store.config.data, split=store.config.split)
    config = own.replace(given)
    for path, value in given.items():
        section, name = path.split(".")[:2]
        now, fixed = getattr(getattr(config, section), name), getattr(getattr(own, section), name)
        if section in ("data", "split") and now != fixed:
            raise store_conflict(store, f"{section}.{name}", value)
    return config


def find_store(source: str) -> Store | None:
    """The store at a path; None if it is a table.

    Raises:
        StoreError: the store is damaged or unfinished.
    """
    from fielddep.store.folder import STORE
    from fielddep.store.store import Store, is_store

    stored = is_store(source) or STORE.state(Path(source)) == "unfinished"
    return Store.open(source) if stored else None


def refuse_store(source: str, command: str) -> None:
    """Refuse a store where a command needs the values of a table."""
    from fielddep.store.store import is_store

    if is_store(source):
        raise TableError(
            f"{command} needs a table, but {source} is a store, which holds ids instead of values. Give the table it "
            "was encoded from"
        )


def find_bundle(run: Path) -> Path:
    """The bundle of a run, or the bundle itself.

    Raises:
        BundleError: there is neither.
    """
    from fielddep.artifacts.run import resolve_bundle
    from fielddep.store.store import is_store

    if is_store(run):
        raise BundleError(f"expected a run or bundle, but {run} is a store. Train on it with `fielddep fit {run}`")
    return resolve_bundle(run)


def open_predictor(run: Path, device: str) -> Predictor:
    """The model of a run, ready to predict on a device."""
    from fielddep.artifacts.predictor import Predictor

    return Predictor(find_bundle(run), device=device)


def reading_of(bundle: Bundle, assignments: list[str] | None) -> DataConfig:
    """How to read a table for a model: like its training table, unless `--set` says otherwise."""
    from fielddep.artifacts.predictor import read_options

    values = assigned(assignments)
    for path in values:
        if path not in _READING:
            raise ConfigError(f"expected one of {', '.join(_READING)}, given {path}. A trained model is fixed")
    return read_options(bundle, bundle.config.replace(values).data)


COMMAND_LINE: ContextVar[Sequence[str]] = ContextVar("command line", default=())
"""Words of the running command."""


def resume_command(*flags: str) -> str:
    """The running command line, with these flags in place of `--force` and `--resume`."""
    words = [word for word in COMMAND_LINE.get() if word not in ("--force", "--resume")]
    return shlex.join(["fielddep", *words, *flags])


@contextlib.contextmanager
def resume_hint(kept: Callable[[], str], *flags: str) -> Iterator[None]:
    """After an interrupt, log what is kept and the command that resumes, and exit.

    Args:
        kept: what is kept; called after the interrupt. Empty if nothing was written.
        flags: added to the command.
    """
    try:
        yield
    except KeyboardInterrupt:
        text = kept()
        resume = f"{text}. Continue with\n  {resume_command(*flags)}"
        log(f"interrupted; {resume if text else 'nothing was written'}")
        raise typer.Exit(INTERRUPTED) from None

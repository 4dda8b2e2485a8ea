"""Options that several commands share, and how they become settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.coercion import parse_assignment
from fielddep.config import Config, DataConfig
from fielddep.errors import ConfigError

if TYPE_CHECKING:
    from fielddep.bundle import Bundle
    from fielddep.predictor import Predictor

TableArgument = Annotated[str, typer.Argument(help="A table: file, folder or glob.", metavar="TABLE")]
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

_READING = ("data.format", "data.delimiter", "data.encoding")


def build_config(file: Path | None, assignments: list[str] | None, named: dict[str, Any]) -> Config:
    """Settings from a file, overruled by `--set`, overruled by options of their own.

    Args:
        file: TOML.
        assignments: texts such as `model.d_embed=20`.
        named: dotted settings; those that are None were not given.
    """
    config = Config() if file is None else Config.from_toml(file)
    values = dict(map(parse_assignment, assignments or []))
    values |= {path: value for path, value in named.items() if value is not None}
    return config.replace(values)


def open_predictor(run: Path, device: str) -> Predictor:
    """The model of a run on a device."""
    from fielddep.environment import check_device
    from fielddep.predictor import Predictor
    from fielddep.run import resolve_bundle

    check_device(device)
    return Predictor(resolve_bundle(run), device=device)


def reading_of(bundle: Bundle, assignments: list[str] | None) -> DataConfig:
    """How to read a table for a model: as its training table was read, unless told otherwise."""
    values = dict(map(parse_assignment, assignments or []))
    for path in values:
        if path not in _READING:
            raise ConfigError(f"only {', '.join(_READING)} can be set for a trained model; given {path}")
    from fielddep.predictor import reading_for

    return reading_for(bundle, bundle.config.replace(values).data)

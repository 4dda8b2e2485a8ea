"""What was trained on what: the first part of a report, from what a run keeps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import torch

from fielddep.bundle import Bundle
from fielddep.config import Config
from fielddep.explain.report import Setting, TrainingFacts
from fielddep.explain.scores import target_of

_SPLITS = {
    "random": "at random",
    "stratified": "at random, with the same share of every class in each part",
    "group": "by groups of {column}, which stay together",
    "time": "by {column}, the latest rows held out",
    "column": "as the column {column} says",
}


def training_facts(
    bundle: Bundle,
    *,
    run: str,
    checksum: str,
    environment: Mapping[str, Any],
    asked: Config,
    parts: Mapping[str, int],
    base_C: torch.Tensor | None = None,
) -> TrainingFacts:
    """Collect what is known of a training.

    Args:
        bundle: the model.
        run: folder of the run, as it was given.
        checksum: checksum of the bundle.
        environment: versions, machine, command and source, as a run keeps them.
        asked: settings as they were asked for.
        parts: rows of train, validation and test, where they are known.
        base_C: output of a model that knows the base rate of the training rows only, where it is known.
    """
    target, layout, source = target_of(bundle), bundle.encoder.layout, environment["source"]
    return TrainingFacts(
        run=run,
        bundle=checksum,
        source=source["name"] or "a table in memory",
        n_rows=source["rows"],
        parts=dict(parts),
        split=split_text(bundle.config),
        target=target.name,
        task=target.task,
        classes=tuple(map(str, target.classes)),
        base=() if base_C is None else tuple(base_C.double().tolist()),
        model=bundle.config.model.name,
        n_parameters=bundle.model.n_parameters,
        n_ids=layout.n_ids_total,
        crosses=layout.names[layout.n_fields :],
        changed=changed_settings(Config().replace({"model.name": asked.model.name}), asked),
        decided=changed_settings(asked, bundle.config),
        versions=_versions(environment),
        command=shlex.join(environment["command"]),
    )


def split_text(config: Config) -> str:
    """How rows were shared out to the parts, in words."""
    return _SPLITS[config.split.method].format(column=config.split.column)


def changed_settings(before: Config, after: Config) -> tuple[Setting, ...]:
    """Settings that are not the same, but for those that other parts of a report tell."""
    old, new = before.to_dict(), after.to_dict()
    return tuple(
        Setting(path=f"{section}.{key}", value=_text(value), default=_text(old[section].get(key)))
        for section, settings in new.items()
        for key, value in settings.items()
        if old[section].get(key) != value and f"{section}.{key}" not in ("data.target", "model.name")
    )


def _versions(environment: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    names = {"fielddep": "fielddep", "python": "Python", "torch": "PyTorch", "polars": "Polars", "platform": "on"}
    return tuple((name, str(environment[key])) for key, name in names.items())


def _text(value: object) -> str:
    if value is None:
        return "not set"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

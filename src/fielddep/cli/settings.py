"""`fielddep settings`: every setting with its default and meaning."""

from __future__ import annotations

from dataclasses import replace

from fielddep.cli.console import print_table
from fielddep.cli.options import ModelOption
from fielddep.config.settings import Config, settings_reference


def settings(model: ModelOption = None) -> None:
    """Print every setting, its default and what it means; --model lightgbm or catboost: of trees in a comparison."""
    rows = [[info.path, _show(info.default), info.doc] for info in settings_reference(_config(model))]
    print_table(["setting", "default", "meaning"], rows, texts=("default", "meaning"))


def _config(model: str | None) -> Config:
    from fielddep.config.trees import TREE_CONFIGS

    if model is None:
        return Config()
    if model in TREE_CONFIGS:
        return replace(Config(), model=TREE_CONFIGS[model]())
    return Config().replace({"model.name": model})


def _show(default: object) -> str:
    if default is None:
        return "-"
    if isinstance(default, tuple):
        return repr(list(default))
    return str(default).lower() if isinstance(default, bool) else str(default)

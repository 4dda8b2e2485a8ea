"""`fielddep settings`: every setting with its default and meaning."""

from __future__ import annotations

from dataclasses import replace

from fielddep.cli.console import print_table
from fielddep.cli.options import ModelOption
from fielddep.config import MODEL_CONFIGS, TREES
from fielddep.config.settings import Config, settings_reference


def settings(model: ModelOption = None) -> None:
    """Print every setting, its default and its meaning.

    --model also takes lightgbm and catboost, which compare and search train.
    """
    if model in TREES:
        config = replace(Config(), model=MODEL_CONFIGS[model]())
    else:
        config = Config().replace({} if model is None else {"model.name": model})
    rows = [[info.path, _show(info.default), info.doc] for info in settings_reference(config)]
    print_table(["setting", "default", "meaning"], rows, texts=("default", "meaning"))


def _show(default: object) -> str:
    if default is None:
        return "-"
    if isinstance(default, tuple):
        return repr(list(default))
    return str(default).lower() if isinstance(default, bool) else str(default)

"""`fielddep settings`: every setting with its default and meaning."""

from __future__ import annotations

from fielddep.cli.console import print_table
from fielddep.config import settings_reference


def settings() -> None:
    """Print every setting, its default and what it means."""
    rows = [[info.path, _show(info.default), info.doc] for info in settings_reference()]
    print_table(["setting", "default", "meaning"], rows, texts=("default", "meaning"))


def _show(default: object) -> str:
    if default is None:
        return "-"
    if isinstance(default, tuple):
        return repr(list(default))
    return str(default).lower() if isinstance(default, bool) else str(default)

"""ARCHITECTURE.md names folders and files that exist, and leaves no folder of the package out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fielddep"
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
NAMED = re.compile(r"`((?:[a-z_]+/)*(?:[a-z_]+/|[a-z_]+\.py))`")
"""A folder, which ends with a slash, or a module, below the package or the project."""


def test_what_the_page_names_exists() -> None:
    named = set(NAMED.findall(PAGE))
    assert len(named) > 30
    absent = {path for path in named if not any((folder / path).exists() for folder in (PACKAGE, ROOT))}
    assert not absent


def test_every_folder_of_the_package_is_named() -> None:
    folders = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("__init__.py")} - {"./"}
    assert folders <= set(NAMED.findall(PAGE))

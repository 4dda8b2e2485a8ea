"""The README is short, its links lead somewhere, and its commands run. Its Python is a doctest of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fielddep.cli import app
from tests.conftest import small_frame
from tests.documents import find_commands, run_command

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
MAX_LINES = 160


def test_commands_of_the_readme_run(tmp_path, monkeypatch):
    table = small_frame(200).rename({"good": "late"})
    table.write_csv(tmp_path / "flights.csv")
    table.drop("late").head(20).write_csv(tmp_path / "new.csv")
    table.tail(20).write_csv(tmp_path / "labelled.csv")
    monkeypatch.chdir(tmp_path)
    for line in find_commands(README):
        run_command(line)
    assert {"run", "predictions.csv", "why", "small"} <= {path.name for path in tmp_path.iterdir()}


def test_the_readme_is_short():
    assert len(README.splitlines()) <= MAX_LINES
    assert {"make demo", "make test"} <= {line.partition("#")[0].strip() for line in README.splitlines()}


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        assert (ROOT / path).is_file(), link
        headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text("utf-8"), re.M) if anchor else []
        assert not anchor or anchor in map(_anchor, headings), link


def test_every_command_is_run_by_a_page():
    pages = [README, *(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))]
    run = {shlex.split(line)[1] for page in pages for line in find_commands(page)}
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert known - run == {"demo"}, "each command stands on a page; `make demo` is the demo's"


def _anchor(heading: str) -> str:
    """What a link to a heading ends with."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")

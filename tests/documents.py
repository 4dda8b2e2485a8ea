"""Pages that are run: the commands and blocks of a Markdown page, and their output compared with what it shows."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fielddep.cli import main

EXACT = "<!-- exact -->"
"""Stands above an output that is compared digit by digit."""
SKIPPED = "..."
_KIND = re.compile(r"^(\w+): (categorical|numerical|both)\b( \(\w+\))?")
"""The kind of a field, which targets decide: generated rows may differ from those of the guide."""
_OF_NUMBERS = ("training the network that sees", "training MDL on top")
"""Lines that only some tables have: with numbers, or with evidence."""
"""A line of an output that stands for lines left out."""

_FENCE = re.compile(
    rf'^(?P<exact>{EXACT}\n)?```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.M | re.S
)
_OWN_TO_ROWS = ("crosses of two fields:", "evidence of")
"""Starts of lines whose rest follows from the rows."""
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: (?:ms|s|min|h|bytes|kB|MB|GB)\b)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?: {_NUMBER})*")
"""One number or more in a row, each with its unit: both depend on the rows and on the machine."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a page.

    Attributes:
        language: shell (commands), text (what the commands above it print), python (a doctest) or toml (a file).
        title: name of the file.
        text: what stands in it.
        line: number of its first line.
        exact: whether an output is compared digit by digit.
    """

    language: str
    title: str
    text: str
    line: int
    exact: bool = False


def find_blocks(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [
        Block(
            language=match["language"],
            title=match["title"] or "",
            text=match["text"],
            line=page.count("\n", 0, match.start("text")) + 1,
            exact=match["exact"] is not None,
        )
        for match in _FENCE.finditer(page)
    ]


def find_commands(page: str) -> list[str]:
    """Command lines of fielddep in the shell blocks of a page, continued lines joined."""
    shells = [block.text.replace("\\\n", " ") for block in find_blocks(page) if block.language == "shell"]
    return [line for text in shells for line in text.splitlines() if line.startswith("fielddep ")]


def run_command(line: str, smaller: Mapping[str, str] | None = None) -> str:
    """Run a command line in this process and give all that it prints, as a terminal would show it.

    Args:
        line: starts with fielddep.
        smaller: values of options that are used instead of those in the line, to save time.
    """
    words = shlex.split(line, comments=True)
    assert words[0] == "fielddep", f"only fielddep can be run; given {line}"
    for place, word in enumerate(words[:-1]):
        words[place + 1] = (smaller or {}).get(word, words[place + 1])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main(words[1:])
    assert code == 0, f"{line} ended with {code}:\n{printed.getvalue()}"
    return printed.getvalue()


@dataclass(kw_only=True)
class PageRunner:
    """Runs the blocks of a page one after the other, in the current folder.

    Attributes:
        smaller: values of options that are used instead of those on the page.
        names: what the Python blocks so far have defined.
        output: what the last shell block printed.
    """

    smaller: Mapping[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    output: str | None = None

    def run(self, page: str) -> None:
        """Run a whole page."""
        runs: dict[str, Callable[[Block], None]] = {
            "shell": self._run_shell,
            "text": self._compare,
            "python": self._run_python,
            "toml": self._write,
        }
        for block in find_blocks(page):
            assert block.language in runs, f"line {block.line}: a block of {block.language!r} cannot be run"
            runs[block.language](block)

    def _run_shell(self, block: Block) -> None:
        lines = block.text.replace("\\\n", " ").splitlines()
        self.output = "".join(run_command(line, self.smaller) for line in lines if line.strip())

    def _compare(self, block: Block) -> None:
        assert self.output is not None, f"line {block.line}: no command stands above this output"
        if block.exact:
            assert bare_lines(block.text) == bare_lines(self.output), f"line {block.line}"
            return
        wanted, given = list(stable_lines(block.text)), set(stable_lines(self.output))
        assert wanted, f"line {block.line}: nothing in this output can be compared"
        absent = [line for line in wanted if line not in given]
        assert not absent, f"line {block.line}: not printed: {absent}; printed:\n{self.output}"

    def _run_python(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, self.names, "page", "page", block.line)
        assert test.examples, f"line {block.line}: Python blocks are doctests, their lines start with >>>"
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        said = io.StringIO()
        runner.run(test, out=said.write, clear_globs=False)
        assert runner.failures == 0, said.getvalue()
        self.names = test.globs

    def _write(self, block: Block) -> None:
        assert block.title, f"line {block.line}: a file needs a title, which is its name"
        Path(block.title).write_text(block.text, "utf-8")


def bare_lines(text: str) -> list[str]:
    """Lines without the spaces around them and without empty ones, as a page need not keep a table's margins."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def stable_lines(text: str) -> Iterator[str]:
    """What is the same in every run on whatever rows: lines with their numbers masked, of tables the header only."""
    inside = False
    for line in text.splitlines():
        words = " ".join(line.split())
        if set(words) == {"─"}:
            inside = True
        elif not words:
            inside = False
        elif not inside and words != SKIPPED and not words.startswith(_OF_NUMBERS):
            yield masked(words)


def masked(line: str) -> str:
    """A line without what depends on the rows and the machine."""
    words = _KIND.sub(r"\1: #", " ".join(line.split()))
    return next((start for start in _OWN_TO_ROWS if words.startswith(start)), _NUMBERS.sub("#", words))

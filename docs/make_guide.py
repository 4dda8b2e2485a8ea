"""Run the guide on the real flights: write what its commands print into its pages, and draw its pictures.

    python -m docs.make_guide --scratch FOLDER

Takes about three minutes and needs the extras `bench`, `plot` and `report`. The picture of the report needs Chromium.
Tests run the same pages on small generated tables, so they notice changed wording but not changed figures: run this
after a change that moves figures.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from tests.documents import SKIPPED, Block, PageRunner, bare_lines, find_blocks, masked, run_command

GUIDE = Path(__file__).parent
PICTURES = GUIDE / "pictures"
FIRST = GUIDE / "first-model.md"
EXTRA_COMMAND = "fielddep explain run held-out.csv --rows 0 --sample 2000 --groups 0 --out why"
"""Draws what the first page shows of learning."""
SOURCES = {
    "learning.png": "why/learning.png",
    "importance.png": "scaled-why/importance.png",
    "dependencies.png": "scaled-why/dependencies.png",
    "rows.png": "scaled-why/rows.png",
    "row-steps.png": "scaled-why/row-0-steps.png",
    "row-weights.png": "scaled-why/row-0-weights.png",
    "row-effects.png": "scaled-why/row-0-effects.png",
    "variants.png": "ablation/variants.png",
}
"""Pictures of the guide, and where its commands leave them."""
REPORT = "report.png"
REPORT_SECTION = "dependencies"
MAX_WIDTH = 2000
"""In pixels; keeps a picture below 200 kB."""


COPIED_TABLE = re.compile(r"(<!-- table: (?P<file>\S+), (?P<n>\d+) columns -->\n\n)(?:\|.*\n)+")
"""A table of a page that shows the first columns of the first table in a file that a command wrote."""


@dataclass(kw_only=True)
class OutputWriter(PageRunner):
    """Runs pages as the tests do, and keeps what was printed instead of comparing it."""

    printed: list[tuple[Block, str]] = field(default_factory=list)

    def rewritten(self, page: str) -> str:
        """The page with the output of this run."""
        self.printed = []
        self.run(page)
        lines = page.splitlines(keepends=True)
        for block, text in reversed(self.printed):
            start = block.line - 1
            lines[start : start + block.text.count("\n")] = [text]
        return COPIED_TABLE.sub(_copied_table, "".join(lines))

    def _compare(self, block: Block) -> None:
        assert self.output is not None
        if bare_lines(block.text) != bare_lines(self.output):
            self.printed.append((block, _shortened(self.output, block.text)))


def _shortened(output: str, shown: str) -> str:
    """The part of an output that the page shows now: its first line, and as many lines; the same after `...`."""
    lines, taken = [line.rstrip() for line in output.splitlines()], []
    for part in shown.split(f"{SKIPPED}\n"):
        if not part.strip():  # `...` is the first or last line
            taken.append("")
            continue
        first, *others = bare_lines(part)
        place = next(n for n, line in enumerate(lines) if line.strip() and masked(line) == masked(first))
        stop = place + 1
        for _ in others:
            stop = next(n for n in range(stop, len(lines)) if lines[n].strip()) + 1
        taken.append("".join(f"{line}\n" for line in lines[place:stop]))
        lines = lines[stop:]
    return f"{SKIPPED}\n".join(taken)


def _copied_table(match: re.Match[str]) -> str:
    lines = Path(match["file"]).read_text("utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("|"))
    stop = next(n for n in range(start, len(lines) + 1) if n == len(lines) or not lines[n].startswith("|"))
    cut = ["|".join(line.split("|")[: int(match["n"]) + 1]) + "|\n" for line in lines[start:stop]]
    return match[1] + "".join(cut)


def photograph(page: Path, section: str, picture: Path, chromium: str) -> None:
    """Draw the head and one section of a page as a browser shows them."""
    style = f"<style>section:not(#{section}) {{ display: none }}</style></head>"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += ["--hide-scrollbars", "--window-size=1100,1250", "--virtual-time-budget=10000"]
    with tempfile.TemporaryDirectory() as folder:
        cut = Path(folder) / "page.html"
        cut.write_text(page.read_text("utf-8").replace("</head>", style, 1), "utf-8")
        command = [chromium, *options, f"--user-data-dir={folder}/profile", f"--screenshot={picture}", cut.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def shrink(source: Path, picture: Path) -> None:
    """Save a picture no wider than a page needs, with a palette of 256 colours."""
    with Image.open(source) as image:
        image.thumbnail((MAX_WIDTH, 2 * MAX_WIDTH))
        image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            picture, optimize=True
        )
    print(f"{picture.name}: {picture.stat().st_size / 1e3:.0f} kB")


def write_pages() -> None:
    """Run all pages in the current folder. Every page builds on the first one."""
    others = [path for path in sorted(GUIDE.glob("*.md")) if path != FIRST and find_blocks(path.read_text("utf-8"))]
    for path in (FIRST, *others):
        print(path.name, flush=True)
        page = path.read_text("utf-8")
        path.write_text(OutputWriter().rewritten(page), "utf-8")


def draw_pictures() -> None:
    """Draw all pictures from the runs in the current folder."""
    run_command(EXTRA_COMMAND)
    for name, source in SOURCES.items():
        shrink(Path(source), PICTURES / name)
    chromium = shutil.which("chromium")
    if chromium is None:
        print(f"Chromium is not installed: {REPORT} was not drawn")
        return
    photograph(Path("scaled-run/report.html"), REPORT_SECTION, Path(REPORT), chromium)
    shrink(Path(REPORT), PICTURES / REPORT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for tables and runs; must be new")
    scratch: Path = parser.parse_args().scratch.resolve()
    scratch.mkdir(parents=True)
    os.chdir(scratch)
    write_pages()
    draw_pictures()

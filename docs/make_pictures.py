"""Pictures of the guide, from real runs on the flights, with the commands that its pages show.

    python docs/make_pictures.py --scratch FOLDER

Takes minutes on one thread, and needs the extras `demo`, `plot` and `report`. The report is drawn where Chromium is
at hand. Tables and runs stay in FOLDER; what is there already is not made again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
from PIL import Image

from fielddep.datasets.flights import load_flights

PICTURES = Path(__file__).parent / "pictures"
COMMANDS = {
    "run": "fit flights.csv --target late --out run --set train.threads=1",
    "why": "explain run held-out.csv --rows 0 --sample 2000 --groups 0 --out why",
    "scaled-run": "fit flights.csv --target late --out scaled-run --set model.inner_step=scaled --set train.threads=1",
    "scaled-why": "explain scaled-run held-out.csv --rows 0,7,42 --sample 2000 --groups 0 --out scaled-why",
    "ablation": "ablate part.csv --target late --what variants --no-search --seeds 3 --threads 1 --out ablation",
}
"""What is run, by the folder that it makes."""
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
"""Pictures of the guide, and where the commands leave them."""
REPORT = "report.png"
REPORT_PART = "dependencies"
"""What is shown of the report."""
MAX_WIDTH = 2000
"""Pixels, so that a picture stays below 200 kB."""


def write_tables() -> None:
    """The tables of the pages, in the current folder."""
    flights = load_flights().with_row_index("row")
    held_out = pl.col("row") % 20 == 0
    training = flights.filter(~held_out).drop("row")
    training.write_csv("flights.csv")
    training.gather_every(10).write_csv("part.csv")
    flights.filter(held_out).drop("row").write_csv("held-out.csv")


def run_commands() -> None:
    """Run what has left no folder yet."""
    for folder, command in COMMANDS.items():
        if not Path(folder).exists():
            subprocess.run([sys.executable, "-m", "fielddep", *shlex.split(command)], check=True)


def photograph(page: Path, part: str, picture: Path, chromium: str) -> None:
    """What a browser shows of a page of which only the head and one section are left."""
    style = f"<style>section:not(#{part}) {{ display: none }}</style></head>"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += ["--hide-scrollbars", "--window-size=1100,1250", "--virtual-time-budget=10000"]
    with tempfile.TemporaryDirectory() as folder:
        cut = Path(folder) / "page.html"
        cut.write_text(page.read_text("utf-8").replace("</head>", style, 1), "utf-8")
        command = [chromium, *options, f"--user-data-dir={folder}/profile", f"--screenshot={picture}", cut.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def shrink(source: Path, picture: Path) -> None:
    """The same picture, not wider than a page needs, with as many colours as a palette can have."""
    with Image.open(source) as image:
        image.thumbnail((MAX_WIDTH, 2 * MAX_WIDTH))
        image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            picture, optimize=True
        )
    print(f"{picture.name}: {picture.stat().st_size / 1e3:.0f} kB")


def make(scratch: Path) -> None:
    """Tables, runs and pictures."""
    scratch.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    os.chdir(scratch)
    write_tables()
    run_commands()
    for name, source in SOURCES.items():
        shrink(Path(source), PICTURES / name)
    chromium = shutil.which("chromium")
    if chromium is None:
        print(f"Chromium is not installed; {REPORT} is left as it is")
        return
    photograph(Path("scaled-run/report.html"), REPORT_PART, Path(REPORT), chromium)
    shrink(Path(REPORT), PICTURES / REPORT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for tables and runs")
    make(parser.parse_args().scratch.resolve())

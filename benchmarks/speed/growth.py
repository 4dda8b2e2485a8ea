"""How the training step grows: rows per second against categories, fields, embedding size, inner steps and batch.

    python benchmarks/speed/growth.py
    python benchmarks/speed/growth.py --axes fields batch --rounds 15

One setting changes at a time, the others stay at `BASE`; the points of an axis take turns in one process. Figures go to
`growth.csv`, pictures to `plots/`. `--draw` only draws again what is in the CSV.
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from plots import draw_line
from programs import FieldDep
from results import HERE, origin, read_rows, write_rows
from shapes import Shape, uniform_shape
from timing import ROUNDS, WARM_UP, in_turn, rates

GROWTH_CSV = HERE / "growth.csv"
PLOTS = HERE / "plots"
KEY = ("axis", "value")
COLUMNS = (
    *KEY,
    *("rows_per_s", "rows_per_s_low", "rows_per_s_high", "n_ids", "n_fields", "d_embed", "n_inner_steps", "batch_rows"),
    *("rounds", "threads", "machine", "commit"),
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """Sizes of one measurement."""

    n_ids: int = 1_000_000
    n_fields: int = 20
    d_embed: int = 32
    n_inner_steps: int = 4
    batch_rows: int = 2048

    @property
    def shape(self) -> Shape:
        """Fields of equal size, ids skewed as in all shapes."""
        even = uniform_shape(n_fields=self.n_fields, n_ids=self.n_ids, d_embed=self.d_embed)
        return replace(even, n_inner_steps=self.n_inner_steps, batch_rows=self.batch_rows)


BASE = Point()


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One setting that changes."""

    setting: str
    values: tuple[int, ...]
    label: str
    log: bool = True


AXES = {
    "categories": Axis(setting="n_ids", values=(10**4, 10**5, 10**6, 10**7), label="categories"),
    "fields": Axis(setting="n_fields", values=(5, 10, 20, 40, 60), label="fields (m)"),
    "d_embed": Axis(setting="d_embed", values=(8, 16, 32, 64, 128), label="embedding size (k)"),
    "inner_steps": Axis(setting="n_inner_steps", values=(0, 1, 2, 4, 8), label="inner steps (T)", log=False),
    "batch": Axis(setting="batch_rows", values=(256, 1024, 2048, 4096, 16_384), label="rows a batch"),
}


def measure(name: str, base: Point, values: tuple[int, ...], rounds: int) -> list[dict[str, object]]:
    """Rows per second at every point of an axis, the points in turn."""
    points = {value: replace(base, **{AXES[name].setting: value}) for value in values}
    works = {}
    for value, point in points.items():
        program, batches = FieldDep(point.shape), point.shape.batches(WARM_UP + rounds)
        works[str(value)] = lambda number, program=program, batches=batches: program.train(batches[number])
    found = in_turn(works, rounds=rounds)
    return [
        {"axis": name, "value": value, **rates(found[str(value)], point.batch_rows), **asdict(point), "rounds": rounds}
        for value, point in points.items()
    ]


def draw(path: Path, folder: Path) -> list[Path]:
    """Draw one picture per axis from a CSV file."""
    drawn = []
    for name, axis in AXES.items():
        rows = [row for row in read_rows(path) if row["axis"] == name]
        if not rows:
            continue
        low, middle, high = (
            [float(row[c]) for row in rows] for c in ("rows_per_s_low", "rows_per_s", "rows_per_s_high")
        )
        drawn.append(folder / f"growth-{name}.png")
        draw_line(
            drawn[-1],
            x=[float(row["value"]) for row in rows],
            y=middle,
            band=(low, high),
            x_label=axis.label,
            y_label="training rows/s",
            title=_title(rows[0], axis),
            log_x=axis.log,
        )
    return drawn


def _title(row: dict[str, str], changing: Axis) -> str:
    """The settings that do not change."""
    names = {"n_ids": "{:,} categories", "n_fields": "{} fields", "d_embed": "k {}", "n_inner_steps": "T {}",
             "batch_rows": "batch {:,}"}  # fmt: skip
    said = [text.format(int(row[setting])) for setting, text in names.items() if setting != changing.setting]
    return ", ".join([*said, f"{row['threads']} threads"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=GROWTH_CSV)
    parser.add_argument("--plots", type=Path, default=PLOTS)
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw what is in the CSV")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in () if arguments.draw else arguments.axes:
        rows = [{**row, **origin()} for row in measure(name, BASE, AXES[name].values, arguments.rounds)]
        write_rows(arguments.out, rows, columns=COLUMNS, key=KEY)
        print(name, {row["value"]: row["rows_per_s"] for row in rows}, flush=True)
        gc.collect()
    draw(arguments.out, arguments.plots)


if __name__ == "__main__":
    main()

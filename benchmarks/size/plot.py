"""Draw `encode.png` from `encode.csv`.

python benchmarks/size/plot.py [encode.csv]
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLOR, AIM_COLOR = "#1f5a99", "#b0413e"
AIM_ROWS_PER_S, AIM_MB = 400_000, 2_500
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
}


def draw(path: Path) -> None:
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    rows = [int(line["rows"]) for line in table]
    with plt.rc_context(STYLE):
        figure, (time, memory, values) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        line(time, rows, [float(line["seconds"]) for line in table], "seconds")
        aim(time, rows, [n / AIM_ROWS_PER_S for n in rows], f"{AIM_ROWS_PER_S:,} rows/s")
        line(memory, rows, [float(line["peak_mb"]) for line in table], "peak memory, MB")
        aim(memory, rows, [AIM_MB] * len(rows), f"{AIM_MB:,} MB")
        memory.set_yscale("linear")
        memory.set_ylim(0, 1.3 * AIM_MB)
        line(values, rows, [int(line["n_categories"]) for line in table], "values in the vocabulary")
        figure.suptitle("fielddep encode: synthetic click log, 22 fields, CSV")
        figure.savefig(path.with_suffix(".png"), dpi=130)
        plt.close(figure)


def line(axis: Any, rows: list[int], measured: list[float] | list[int], label: str) -> None:
    axis.loglog(rows, measured, "o-", color=COLOR, label="measured")
    axis.set_xlabel("rows")
    axis.set_ylabel(label)
    # Full decades; a shorter axis would get labelled minor ticks.
    axis.set_ylim(10 ** math.floor(math.log10(min(measured))), 10 ** (math.floor(math.log10(max(measured))) + 1))


def aim(axis: Any, rows: list[int], wanted: list[float] | list[int], label: str) -> None:
    axis.loglog(rows, wanted, "--", color=AIM_COLOR, linewidth=1.2, label=label)
    axis.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="?", default=Path(__file__).parent / "encode.csv")
    draw(parser.parse_args().table)


if __name__ == "__main__":
    main()

"""Make the tables of `docs/speed.md` from `results.csv`.

python benchmarks/speed/summary.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "speed.md"
RESULTS = HERE / "results.csv"
START, END = "<!-- speed: made by benchmarks/speed/summary.py -->", "<!-- end of speed -->"
SHAPES = {
    "frappe": "Frappe (10 fields, 5,382 ids, k 40)",
    "ml-rating": "ML-Rating (6, 13,461, k 20)",
    "avazu": "Avazu (22, 2,018,012, k 40)",
    "criteo": "Criteo (39, 395,894, k 20)",
    "kdd2012": "KDD2012 (11, 2,047,519, k 120)",
}
LEGEND = (
    "*k* is the size of an embedding. *Plain form*: the same model in PyTorch operations, without our kernels. "
    "*Textbook*: the paper's equations, written in PyTorch as they stand. *Ratio*: ours over textbook."
)
PEERS = {"deepctr-xdeepfm": "xDeepFM", "deepctr-deepfm": "DeepFM"}


def speed_text(results: pl.DataFrame) -> str:
    """Tables of training, prediction and single rows, and of the peers."""
    return "\n\n".join([_shape_table(results), LEGEND, *_peer_texts(results), _origin(results)])


def _shape_table(results: pl.DataFrame) -> str:
    lines = [
        "| shape | training rows/s | plain form | textbook | ratio | prediction rows/s | one row, p50 / p99 | peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for shape, title in SHAPES.items():
        ours, plain, textbook = (_row(results, shape, "train", p) for p in ("fielddep", "fielddep-plain", "textbook"))
        predict, single = (_row(results, shape, what, "fielddep") for what in ("predict", "row"))
        cells = [
            title,
            *(f"{row['rows_per_s']:,.0f}" for row in (ours, plain, textbook)),
            f"{ours['rows_per_s'] / textbook['rows_per_s']:.0f}x",
            f"{predict['rows_per_s']:,.0f}",
            f"{single['p50_ms']:.1f} / {single['p99_ms']:.1f} ms",
            f"{ours['peak_mb']:,.0f} MB, textbook {textbook['peak_mb']:,.0f} MB",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _peer_texts(results: pl.DataFrame) -> list[str]:
    """Time to the best validation loss, and training speed next to that of the peers, if measured."""
    texts = []
    best = results.filter(pl.col("what") == "best").sort("shape", "seconds")
    if len(best):
        header = "| table | program | seconds to its best validation logloss | that logloss | seeds |"
        lines = [header, "|---|---|---|---|---|"]
        lines += [
            f"| {row['shape']} | {row['program']} | {_time(row)} | {row['validation_loss']:.4f} | {row['rounds']} |"
            for row in best.iter_rows(named=True)
        ]
        texts.append("\n".join(lines))
    for program, name in PEERS.items():
        steps = results.filter(pl.col("what") == "train", pl.col("program") == program)
        ratios = [
            f"{row['shape']} {row['fielddep_rows_per_s'] / row['rows_per_s']:.3g}x"
            for row in steps.drop_nulls("fielddep_rows_per_s").iter_rows(named=True)
        ]
        if ratios:
            texts.append(f"Training rows/s of MDL over those of DeepCTR-Torch's {name}: {', '.join(ratios)}.")
    return texts


def _time(row: dict[str, Any]) -> str:
    """Seconds to the best loss; a lower bound for a training that ran out of time."""
    return f"{row['seconds']:,.1f}" + (" (stopped)" if row["limit_s"] else "")


def _origin(results: pl.DataFrame) -> str:
    machines = ", ".join(results["machine"].unique(maintain_order=True).to_list())
    commits = ", ".join(map(str, results["commit"].unique(maintain_order=True).to_list()))
    threads = ", ".join(map(str, results["threads"].unique(maintain_order=True).to_list()))
    return f"Medians; the programs take turns. {threads} threads; {machines}; commits {commits}."


def _row(results: pl.DataFrame, shape: str, what: str, program: str) -> dict[str, float]:
    wanted = (pl.col("shape") == shape) & (pl.col("what") == what) & (pl.col("program") == program)
    return results.filter(wanted).row(0, named=True)


def filled(page: str) -> str:
    """The page with its tables made from the CSV file."""
    before, rest = page.split(START)
    body = speed_text(pl.read_csv(RESULTS))
    return f"{before}{START}\n\n{body}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")

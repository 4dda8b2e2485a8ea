"""Make the tables of speed and size in the project's README from the committed CSV files.

python benchmarks/speed/summary.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
RESULTS, ENCODE, TRAIN = HERE / "results.csv", HERE.parent / "size" / "encode.csv", HERE.parent / "size" / "train.csv"
SHAPES = {
    "frappe": "Frappe (10 fields, 5,382 ids, k 40)",
    "ml-rating": "ML-Rating (6, 13,461, k 20)",
    "avazu": "Avazu (22, 2,018,012, k 40)",
    "criteo": "Criteo (39, 395,894, k 20)",
    "kdd2012": "KDD2012 (11, 2,047,519, k 120)",
}
LEGEND = (
    "*k* is the size of an embedding; *plain form* the same model in PyTorch operations, without our kernels; "
    "*textbook* the equations of the paper as they stand, in PyTorch; *ratio* the first over the third."
)
PEERS = {"deepctr-xdeepfm": "xDeepFM", "deepctr-deepfm": "DeepFM"}


def speed_text(results: pl.DataFrame) -> str:
    """Tables of training, prediction and single rows, and of the peers."""
    return "\n\n".join([_shape_table(results), LEGEND, *_peer_texts(results), _origin(results)])


def size_text(encode: pl.DataFrame, train: pl.DataFrame) -> str:
    """One line a measurement of tables larger than memory."""
    lines = ["| generated click log, 22 fields | rows | seconds | rows/s | peak memory |", "|---|---|---|---|---|"]
    for row in encode.sort("rows").iter_rows(named=True):
        what = f"encode, {row['csv_bytes'] / 1e9:.2f} GB of CSV, {row['n_categories']:,} categories"
        lines.append(_size_line(what, row))
    for row in train.iter_rows(named=True):
        what = "fit, one epoch, k 40" if row["what"] == "fit" else f"evaluate, AUC {row['auc']:.4f}, exact"
        lines.append(_size_line(what, row))
    best = train.filter(pl.col("what") == "evaluate").row(0, named=True)
    note = (
        "Without crosses (`data.crosses=[]`); the rate of fit is that of its training steps. The best possible AUC on "
        f"these rows, that of the generator's own probabilities, is {best['best_auc']:.4f}. "
        "`benchmarks/size` has the commands and the plots."
    )
    return "\n".join(lines) + f"\n\n{note}"


def _size_line(what: str, row: dict[str, float]) -> str:
    return f"| {what} | {row['rows']:,} | {row['seconds']:,.0f} | {row['rows_per_s']:,.0f} | {row['peak_mb']:,.0f} MB |"


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
    """Time to the best validation loss, and training steps beside those of peers, as far as they were measured."""
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
            texts.append(f"Training rows/s of MDL over those of DeepCTR-Torch's {name}, in turns: {', '.join(ratios)}.")
    return texts


def _time(row: dict[str, Any]) -> str:
    """Seconds to the best loss; one that was the best when the time was up is a lower bound."""
    return f"{row['seconds']:,.1f}" + (" (and not done)" if row["limit_s"] else "")


def _origin(results: pl.DataFrame) -> str:
    machines = ", ".join(results["machine"].unique(maintain_order=True).to_list())
    commits = ", ".join(map(str, results["commit"].unique(maintain_order=True).to_list()))
    threads = ", ".join(map(str, results["threads"].unique(maintain_order=True).to_list()))
    return f"Medians of programs that take turns; {threads} threads; {machines}; commits {commits}."


def _row(results: pl.DataFrame, shape: str, what: str, program: str) -> dict[str, float]:
    wanted = (pl.col("shape") == shape) & (pl.col("what") == what) & (pl.col("program") == program)
    return results.filter(wanted).row(0, named=True)


def insert(page: str, name: str, body: str) -> str:
    """The page with the text between the marks of that name replaced."""
    start, end = f"<!-- {name}: made by benchmarks/speed/summary.py -->", f"<!-- end of {name} -->"
    before, rest = page.split(start)
    return f"{before}{start}\n\n{body}\n\n{end}{rest.split(end)[1]}"


def filled(page: str) -> str:
    """A page with all its tables as the CSV files have them."""
    page = insert(page, "speed", speed_text(pl.read_csv(RESULTS)))
    return insert(page, "size", size_text(pl.read_csv(ENCODE), pl.read_csv(TRAIN)))


def main() -> None:
    readme = PROJECT / "README.md"
    readme.write_text(filled(readme.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

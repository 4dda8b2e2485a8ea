"""Make the tables of the accuracy benchmark from `results.csv`, here and in the project's README.

python benchmarks/accuracy/summary.py
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
START, END = "<!-- accuracy: made by benchmarks/accuracy/summary.py -->", "<!-- end of accuracy -->"


def summarize(results: pl.DataFrame) -> pl.DataFrame:
    """Mean, standard deviation and number of seeds of every test figure."""
    keys = ["dataset", "model", "variant", "metric"]
    return (
        results.filter(pl.col("split") == "test")
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.col("value").std().alias("std"),
            pl.col("seed").n_unique().alias("seeds"),
            pl.col("train_seconds").median().alias("seconds"),
        )
        .sort("dataset", "model", "variant")
    )


def table(summary: pl.DataFrame) -> str:
    """Markdown: one line a table and model."""
    lines = ["| table | model | settings | logloss | AUC | MSE | seeds |", "|---|---|---|---|---|---|---|"]
    for (dataset, model, variant), part in summary.group_by(["dataset", "model", "variant"], maintain_order=True):
        figures = {row["metric"]: _figure(row) for row in part.iter_rows(named=True)}
        cells = [dataset, model, variant, *(figures.get(m, "") for m in ("logloss", "auc", "mse")), part["seeds"].max()]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _figure(row: dict[str, float]) -> str:
    spread = "" if row["std"] is None else f" ± {row['std']:.4f}"
    return f"{row['mean']:.4f}{spread}"


def text(results: pl.DataFrame) -> str:
    """The tables with what one must know to read them."""
    machine = json.loads((HERE / "machine.json").read_text("utf-8"))
    commits = ", ".join(results["commit"].unique(maintain_order=True).to_list())
    note = (
        f"Test rows, mean ± standard deviation over seeds; {machine['cores']} cores, {machine['threads']} thread, "
        f"torch {machine['torch']}, commits {commits}. Tuned settings were chosen on validation rows only."
    )
    return f"{table(summarize(results))}\n\n{note}"


def insert(page: str, body: str) -> str:
    """The page with the text between the marks replaced."""
    before, rest = page.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}\n\n{body}\n\n{END}{after}"


def main() -> None:
    body = text(pl.read_csv(HERE / "results.csv"))
    for path in (PROJECT / "README.md", HERE / "README.md"):
        path.write_text(insert(path.read_text("utf-8"), body), "utf-8")
    print(body)


if __name__ == "__main__":
    main()

"""Tables of the guide that come from the committed benchmarks.

    python docs/make_figures.py            # writes them into the pages, between their marks

A mark is `<!-- figures: NAME -->`, the end `<!-- end of figures -->`. A test fails where a page is not up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import polars as pl

PAGES = Path(__file__).parent
BENCHMARKS = PAGES.parent / "benchmarks"
MARKED = re.compile(r"(?P<begin><!-- figures: (?P<name>[\w-]+) -->\n\n).*?(?P<end>\n\n<!-- end of figures -->)", re.S)

LOSSES = {**dict.fromkeys(("frappe", "ml-tag-part", "flights", "diabetes130"), "logloss"), "ml-rating": "mse"}
"""Tables of the accuracy benchmark, and the loss of each."""
SMALL_FIGURES = (("mdl", "logloss"), ("lightgbm", "logloss"), ("mdl", "base_logloss"))


def inner_steps() -> str:
    """Validation loss by size and kind of the inner step."""
    runs = _inner_runs()
    rates = runs["inner_lr"].unique().sort()
    rows = [
        [table, settings, step, *(_mean_loss(part.filter(inner_lr=rate)["validation_loss"]) for rate in rates)]
        for (table, settings, step), part in runs.group_by("table", "settings", "inner_step", maintain_order=True)
    ]
    return _table(["table", "settings", "step", *(f"{rate:g}" for rate in rates)], rows)


def inner_costs() -> str:
    """What a size of the inner step costs beside the best size and kind, over all tables and settings."""
    runs = _inner_runs()
    case = ["table", "settings"]
    means = runs.group_by(*case, "inner_step", "inner_lr").agg(pl.col("validation_loss").mean())
    costs = means.with_columns(cost=pl.col("validation_loss") - pl.col("validation_loss").min().over(case))
    rates = runs["inner_lr"].unique().sort()
    rows = []
    for step in runs["inner_step"].unique().sort():
        found = [costs.filter(inner_step=step, inner_lr=rate)["cost"].to_list() for rate in rates]
        rows.append([step, *(f"{fmean(cost):.4f} ({max(cost):.4f})" for cost in found)])
    return _table(["step", *(f"{rate:g}" for rate in rates)], rows)


def encoding() -> str:
    """Time and memory of `encode`."""
    rows = [
        [
            f"{row['rows']:,}",
            f"{row['csv_bytes'] / 1e9:.2f} GB",
            f"{row['n_categories']:,}",
            f"{row['seconds']:.0f}",
            f"{row['peak_mb']:,.0f} MB",
        ]
        for row in pl.read_csv(BENCHMARKS / "size/encode.csv").sort("rows").iter_rows(named=True)
    ]
    return _table(["rows", "CSV", "different values", "seconds", "peak memory"], rows)


def training() -> str:
    """Time and memory of an epoch and of an evaluation from a store."""
    rows = [
        [row["what"], f"{row['rows']:,}", f"{row['seconds']:.0f}", f"{row['peak_mb']:,.0f} MB"]
        for row in pl.read_csv(BENCHMARKS / "size/train.csv").sort("what", descending=True).iter_rows(named=True)
    ]
    return _table(["command", "rows", "seconds", "peak memory"], rows)


def trees() -> str:
    """MDL beside the tree models, with tuned settings."""
    means = _test_means()
    rows = [
        [table, model, _mean(means, table, model, loss), _mean(means, table, model, "auc") if loss != "mse" else ""]
        for table, loss in LOSSES.items()
        for model in ("mdl", "lightgbm", "catboost")
    ]
    return _table(["table", "model", "logloss (ml-rating: MSE)", "AUC"], rows)


def dependencies() -> str:
    """MDL with and without its dependencies."""
    means = _test_means()
    rows = [
        [table, loss, _mean(means, table, "mdl", loss), _mean(means, table, "mdl-wo-dep", loss)]
        for table, loss in LOSSES.items()
    ]
    return _table(["table", "metric", "MDL", "without dependencies"], rows)


def small_tables() -> str:
    """Defaults on small samples."""
    runs = pl.read_csv(BENCHMARKS / "accuracy/defaults.csv").group_by("dataset", "rows", "model", "metric")
    figures = {tuple(key): value for *key, value in runs.agg(pl.col("value").mean()).iter_rows()}
    rows = [
        [table, f"{n:,}", *(f"{figures[table, n, model, metric]:.4f}" for model, metric in SMALL_FIGURES)]
        for table in ("flights", "diabetes130")
        for n in (1_000, 10_000)
    ]
    return _table(["table", "rows", "MDL logloss", "LightGBM logloss", "base rate"], rows)


def field_growth() -> str:
    """Speed of training by the number of fields."""
    growth = pl.read_csv(BENCHMARKS / "speed/growth.csv").filter(axis="fields").sort("n_fields")
    return _table(
        ["fields", "rows a second"],
        [[str(n), f"{rate:,.0f}"] for n, rate in growth.select("n_fields", "rows_per_s").iter_rows()],
    )


FIGURES: dict[str, Callable[[], str]] = {
    "inner-steps": inner_steps,
    "inner-costs": inner_costs,
    "encoding": encoding,
    "training": training,
    "trees": trees,
    "dependencies": dependencies,
    "small-tables": small_tables,
    "field-growth": field_growth,
}
"""What makes the table of every mark."""


def filled(page: str) -> str:
    """A page with all its tables as the benchmarks have them now."""
    return MARKED.sub(lambda mark: f"{mark['begin']}{FIGURES[mark['name']]()}{mark['end']}", page)


def _inner_runs() -> pl.DataFrame:
    """Runs with other inner steps; those of 100, which are bad everywhere, would make a page too wide."""
    runs = pl.read_csv(BENCHMARKS / "accuracy/inner_step.csv").filter(pl.col("inner_lr") < 100)
    return runs.sort("table", "settings", "inner_step", "inner_lr")


def _test_means() -> pl.DataFrame:
    """Means over seeds of tuned models on test rows."""
    results = pl.read_csv(BENCHMARKS / "accuracy/results.csv", infer_schema_length=None)
    tuned = results.filter(variant="tuned", split="test")
    return tuned.group_by("dataset", "model", "metric").agg(pl.col("value").mean())


def _mean(means: pl.DataFrame, table: str, model: str, metric: str) -> str:
    return f"{means.filter(dataset=table, model=model, metric=metric)['value'].item():.4f}"


def _mean_loss(losses: pl.Series) -> str:
    """Mean over seeds; a word where a training diverged."""
    return "diverges" if losses.null_count() else f"{fmean(losses):.4f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(filled(path.read_text("utf-8")), "utf-8")

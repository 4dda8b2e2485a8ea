"""Make the tables of the accuracy benchmark from `results.csv`: every figure here, an overview in the guide.

python benchmarks/accuracy/summary.py
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from fielddep.experiments.significance import dunnett_table

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs" / "accuracy.md"
KEYS = ["dataset", "model", "variant", "metric"]
METRICS = ("logloss", "auc", "mse")
LOSSES = ("logloss", "mse")
REGRESSION = ("ml-rating",)
CATBOOST = ("tuned", "expert")
"""Settings of CatBoost: of the five-minute search, and of one that also covers its statistics of values."""
WITH_EVIDENCE = {"mdl": "default", "blend": "default", "lightgbm-evidence": "default", "lightgbm": "tuned"}
"""Models next to CatBoost where evidence is judged, and their settings."""
EVIDENCE_LEAD = (
    "Loss on test rows with evidence and without any setting, next to LightGBM and CatBoost. *lightgbm* is tuned and "
    "sees no evidence, *lightgbm-evidence* has defaults. CatBoost has the better of two tuned settings by validation "
    "rows. p: one-sided Dunnett test of a lower loss than CatBoost's. Seeds and seconds: CatBoost / mdl / blend; some "
    "runs of mdl and blend shared their core with other work, or were paused for minutes."
)
TUNED_LEAD = "All models without evidence, tuned:"
PUBLISHED = "Compared with published figures (`published.csv`; the better one where there are two):"
START, END = "<!-- accuracy: made by benchmarks/accuracy/summary.py -->", "<!-- end of accuracy -->"


def summarize(results: pl.DataFrame) -> pl.DataFrame:
    """Mean, standard deviation and number of seeds of every test figure."""
    return (
        results.filter(pl.col("split") == "test")
        .group_by(KEYS, maintain_order=True)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.col("value").std().alias("std"),
            pl.col("seed").n_unique().alias("seeds"),
            pl.col("train_seconds").median().alias("seconds"),
        )
        .sort("dataset", "model", "variant")
    )


def table(summary: pl.DataFrame) -> str:
    """Markdown: one line per table and model."""
    lines = ["| table | model | settings | logloss | AUC | MSE | seeds |", "|---|---|---|---|---|---|---|"]
    for (dataset, model, variant), part in summary.group_by(["dataset", "model", "variant"], maintain_order=True):
        figures = {row["metric"]: _figure(row) for row in part.iter_rows(named=True)}
        cells = [dataset, model, variant, *(figures.get(m, "") for m in METRICS), part["seeds"].max()]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _figure(row: dict[str, float]) -> str:
    spread = "" if row["std"] is None else f" ± {row['std']:.4f}"
    return f"{row['mean']:.4f}{spread}"


def overview(summary: pl.DataFrame) -> str:
    """Markdown: one line per tuned model, one column per table; sorted by the loss on the table with most models."""
    summary = summary.filter(variant="tuned")
    losses = summary.filter(pl.col("metric").is_in(LOSSES)).with_columns(
        pl.col("mean").rank("min").over("dataset").alias("place"), pl.len().over("dataset").alias("n_models")
    )
    datasets = losses.sort("n_models", "dataset", descending=[True, False])["dataset"].unique(maintain_order=True)
    first = losses.filter(dataset=datasets[0]).select("model", "variant", "place")
    order = losses.select("model", "variant").unique().join(first, on=["model", "variant"], how="left")
    lines = ["| model | " + " | ".join(map(_heading, datasets)) + " |", "|---" * (len(datasets) + 1) + "|"]
    figures = {tuple(row[k] for k in KEYS): row for row in summary.iter_rows(named=True)}
    best = {row["dataset"]: (row["model"], row["variant"]) for row in losses.filter(pl.col("place") == 1).to_dicts()}
    for model, variant in order.sort("place", "model", nulls_last=True).select("model", "variant").iter_rows():
        cells = [_cell(figures, (dataset, model, variant), best[dataset] == (model, variant)) for dataset in datasets]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _heading(dataset: str) -> str:
    return f"{dataset}: MSE" if dataset in REGRESSION else f"{dataset}: logloss / AUC"


def _cell(figures: dict[tuple[str, ...], dict[str, float]], key: tuple[str, str, str], is_best: bool) -> str:
    found = [f"{figures[(*key, metric)]['mean']:.4f}" for metric in METRICS if (*key, metric) in figures]
    return f"**{' / '.join(found)}**" if is_best else " / ".join(found)


def places(summary: pl.DataFrame) -> str:
    """The rank of MDL, one line per table; its own variant is not counted."""
    lines = []
    counted = pl.col("metric").is_in(LOSSES) & (pl.col("variant") == "tuned") & (pl.col("model") != "mdl-wo-dep")
    for (dataset,), part in summary.filter(counted).group_by(["dataset"], maintain_order=True):
        ranked = part.sort("mean")
        names = ranked["model"].to_list()
        if "mdl" not in names or len(names) < 3:
            continue
        own = ranked.row(names.index("mdl"), named=True)
        place = f"place {names.index('mdl') + 1} of {len(names)} by {own['metric']} ({_figure(own)})"
        ahead = ", ".join(f"{row['model']} {_figure(row)}" for row in ranked.head(names.index("mdl")).to_dicts())
        then = f"; ahead of it: {ahead}" if ahead else f"; next: {names[1]} {_figure(ranked.row(1, named=True))}"
        lines.append(f"- {dataset}: {place}{then}.")
    return "\n".join(lines)


def with_evidence(results: pl.DataFrame) -> str:
    """Markdown: defaults with evidence next to CatBoost, one line per table; empty without such runs.

    CatBoost has the settings with the lower validation loss. p is that of one-sided Dunnett tests: is the loss lower?
    """
    header = ["table", "CatBoost", *WITH_EVIDENCE, "mdl / CatBoost", "blend / CatBoost", "seeds", "seconds of a run"]
    lines = []
    for (dataset,), part in results.filter(pl.col("metric").is_in(LOSSES)).group_by("dataset", maintain_order=True):
        best = part.filter(pl.col("variant").is_in(CATBOOST), model="catboost", split="validation")
        if best.is_empty() or part.filter(model="blend", variant="default").is_empty():
            continue
        settings = best.group_by("variant").agg(pl.col("value").mean()).sort("value")["variant"][0]
        chosen = {"catboost": settings, **WITH_EVIDENCE}
        runs = {m: part.filter(model=m, variant=v, split="test") for m, v in chosen.items()}
        found = {model: rows["value"].to_list() for model, rows in runs.items() if len(rows)}
        cells = [_mean_spread(runs[model]["value"]) for model in chosen]
        cells[0] += f" ({settings})"
        cells += [_next_to_catboost(found, model) for model in ("mdl", "blend")]
        cells += [" / ".join(str(len(runs[model])) for model in ("catboost", "mdl", "blend"))]
        cells += [" / ".join(f"{runs[m]['train_seconds'].median():.0f}" for m in ("catboost", "mdl", "blend"))]
        lines.append([str(dataset), *cells])
    if not lines:
        return ""
    grid = [header, ["---"] * len(header), *lines]
    return EVIDENCE_LEAD + "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in grid)


def _mean_spread(values: pl.Series) -> str:
    if values.is_empty():
        return ""
    return f"{values.mean():.4f}" + (f" ± {values.std():.4f}" if len(values) > 1 else "")


def _next_to_catboost(losses: dict[str, list[float]], model: str) -> str:
    """How far the mean loss is from CatBoost's, and whether it is significantly lower."""
    if model not in losses:
        return ""
    own, other = (pl.Series(losses[name]).mean() for name in (model, "catboost"))
    change = f"{100 * (own / other - 1):+.1f} %"
    if min(len(losses[model]), len(losses["catboost"])) < 2:
        return change
    p = dunnett_table(losses, metric="loss", better="lower", control=model).p("catboost")
    return change if p is None else f"{change} (p {'< .001' if p < 0.001 else f'= {p:.3f}'})"


def next_to_published(summary: pl.DataFrame) -> str:
    """Markdown: tuned models next to the better of their published figures."""
    lines = [
        "| table | model | metric | here | published | from | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    published = pl.read_csv(HERE / "published.csv").join(
        summary.filter(variant="tuned"), on=["dataset", "model", "metric"], maintain_order="left"
    )
    for (dataset, model, metric), part in published.group_by(["dataset", "model", "metric"], maintain_order=True):
        row = part.sort("value", descending=metric not in LOSSES).row(0, named=True)
        apart = f"{row['mean'] - row['value']:+.4f}"
        cells = [dataset, model, metric, _figure(row), f"{row['value']:.4f}", row["source"], apart]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def threads(results: pl.DataFrame, otherwise: int | None) -> str:
    """Threads of the runs: those of their rows, or `otherwise` for rows that have none."""
    known = results["threads"].unique().to_list() if "threads" in results.columns else [None]
    found = {otherwise if n_threads is None else n_threads for n_threads in known}
    if None in found:
        return ""
    return f"{' or '.join(map(str, sorted(found)))} thread{'s' if found != {1} else ''}, "


def note(results: pl.DataFrame) -> str:
    """How the figures were measured."""
    machine = json.loads((HERE / "machine.json").read_text("utf-8"))
    commits = ", ".join(results["commit"].unique(maintain_order=True).to_list())
    return (
        f"Test rows, means over seeds (at least {summarize(results)['seeds'].min()}); {machine['cores']} cores, "
        f"{threads(results, machine.get('threads'))}torch {machine['torch']}, commits {commits}. "
        "Tuned settings were chosen on validation rows only."
    )


def texts(results: pl.DataFrame) -> dict[Path, str]:
    """The text between the marks of every page."""
    summary = summarize(results)
    parts = {
        GUIDE: [with_evidence(results), TUNED_LEAD, places(summary), overview(summary)],
        HERE / "README.md": [table(summary)],
    }
    parts[HERE / "README.md"] += [PUBLISHED, next_to_published(summary)]
    return {page: "\n\n".join(filter(None, [*found, note(results)])) for page, found in parts.items()}


def insert(page: str, body: str, marks: tuple[str, str] = (START, END)) -> str:
    """The page with the text between the marks replaced."""
    start, end = marks
    before, rest = page.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n\n{body}\n\n{end}{after}"


def main() -> None:
    for page, body in texts(pl.read_csv(HERE / "results.csv", infer_schema_length=None)).items():
        page.write_text(insert(page.read_text("utf-8"), body), "utf-8")
        print(body)


if __name__ == "__main__":
    main()

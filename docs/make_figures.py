"""Tables of the guide, and the highlights of the README, from the committed benchmarks.

    python docs/make_figures.py            # writes them into the pages, between their marks

A mark is `<!-- figures: NAME -->`, the end `<!-- end of figures -->`. A test fails where a page is not up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import polars as pl

GUIDE = Path(__file__).parent
PAGES = (GUIDE.parent / "README.md", *sorted(GUIDE.glob("*.md")))
BENCHMARKS = GUIDE.parent / "benchmarks"
MARKED = re.compile(r"(?P<begin><!-- figures: (?P<name>[\w-]+) -->\n\n).*?(?P<end>\n\n<!-- end of figures -->)", re.S)
COUNTS = re.compile(
    r"Of (?P<tables>\d+) tables, fielddep is first or equal on (?P<good>\d+), and more than (?P<limit>\d+) % above the "
    r"better trees on (?P<far>\d+)"
)
"""What the page of `benchmarks/tables` counts."""

LOSSES = {**dict.fromkeys(("frappe", "ml-tag-part", "flights", "diabetes130"), "logloss"), "ml-rating": "mse"}
"""Tables of the accuracy benchmark, and the loss of each."""
CHOSEN = {"blend": ("default",), "mdl": ("default",), "lightgbm": ("tuned",), "catboost": ("tuned", "expert")}
"""Models with evidence and the trees next to them, with their settings; of several, validation rows choose."""
SMALL_FIGURES = (("mdl", "logloss"), ("lightgbm", "logloss"), ("mdl", "base_logloss"))


def highlights() -> str:
    """Why one would choose the library, in four figures, with what speaks against it."""
    return "\n".join([_speed_highlight(), _size_highlight(), _defaults_highlight(), _accuracy_highlight()])


def _speed_highlight() -> str:
    steps = pl.read_csv(BENCHMARKS / "speed/results.csv").filter(what="train")
    ours = dict(steps.filter(program="fielddep").select("shape", "rows_per_s").iter_rows())
    textbook = steps.filter(program="textbook").select("shape", "rows_per_s").iter_rows()
    ratios = [ours[shape] / rate for shape, rate in textbook]
    xdeepfm, deepfm = (_over_peer(steps, f"deepctr-{model}") for model in ("xdeepfm", "deepfm"))
    return (
        f"- **Fast on two cores.** It trains {min(ratios):.0f} to {max(ratios):.0f} times as fast as the paper's "
        f"equations in plain PyTorch,\n  and {xdeepfm} times as fast as DeepCTR-Torch's xDeepFM (its DeepFM: {deepfm} "
        "times; [speed](docs/speed.md))."
    )


def _over_peer(steps: pl.DataFrame, program: str) -> str:
    """The smallest and the largest ratio of our training speed over that of a peer."""
    ratios = steps.filter(program=program).select(pl.col("fielddep_rows_per_s") / pl.col("rows_per_s")).to_series()
    return f"{ratios.min():.0f} to {ratios.max():.0f}"


def _size_highlight() -> str:
    row = pl.read_csv(BENCHMARKS / "size/encode.csv").sort("rows").row(-1, named=True)
    return (
        f"- **Larger than memory.** {row['rows'] / 1e6:.0f} million rows, {row['csv_bytes'] / 1e9:.1f} GB of CSV with "
        f"{row['n_categories'] / 1e6:.1f} million different values, are encoded in\n  {row['seconds']:.0f} seconds "
        f"with {row['peak_mb'] / 1e3:.1f} GB of memory ([size](docs/larger-than-memory.md#what-it-costs))."
    )


def _defaults_highlight() -> str:
    """The sentence that heads the page of defaults, which is made from its results."""
    found = COUNTS.search((BENCHMARKS / "tables/README.md").read_text("utf-8"))
    assert found is not None
    return (
        "- **Good without tuning.** Its defaults are ahead of those of LightGBM and CatBoost, or equal within the "
        f"noise,\n  on {found['good']} of {found['tables']} tables. Its mean loss is more than {found['limit']} % "
        f"above that of the better trees on {found['far']}\n  ([defaults](benchmarks/tables/README.md))."
    )


def _accuracy_highlight() -> str:
    """How often MDL and blend are ahead of CatBoost, which was tuned, and how long MDL takes next to it."""
    runs = _chosen_runs()
    means = _means(runs)
    n_ahead = {
        model: sum(_loss(means, table, model) < _loss(means, table, "catboost") for table in LOSSES)
        for model in ("mdl", "blend")
    }
    medians = runs.group_by("dataset", "model").agg(pl.col("train_seconds").median())
    seconds = {(table, model): median for table, model, median in medians.iter_rows()}
    shares = [seconds[table, "mdl"] / seconds[table, "catboost"] for table in LOSSES if (table, "mdl") in seconds]
    blend, mdl, catboost = (_mean(means, "frappe", model, "logloss") for model in ("blend", "mdl", "catboost"))
    return (
        f"- **Accurate without a setting.** With defaults, the blend with trees is ahead of tuned CatBoost on "
        f"{n_ahead['blend']} of {len(LOSSES)} tables, and MDL\n  alone on {n_ahead['mdl']}: on Frappe, logloss {blend} "
        f"and {mdl} against {catboost}. A run of MDL takes {min(shares):.0%} to\n  {max(shares):.0%} of the "
        "time of one of CatBoost ([accuracy](docs/accuracy.md))."
    )


def _loss(means: pl.DataFrame, table: str, model: str) -> float:
    """Mean loss, infinite for a model that was not run."""
    found = means.filter(dataset=table, model=model, metric=LOSSES[table])["value"]
    return float(found.item()) if len(found) else float("inf")


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
    """What a size of the inner step costs compared with the best size and kind, over all tables and settings."""
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
    """Defaults of MDL and of its blend with trees, next to tuned tree models."""
    means = _means(_chosen_runs())
    rows = [
        [table, model, _mean(means, table, model, loss), _mean(means, table, model, "auc") if loss != "mse" else ""]
        for table, loss in LOSSES.items()
        for model in CHOSEN
        if not means.filter(dataset=table, model=model).is_empty()
    ]
    return _table(["table", "model", "logloss (ml-rating: MSE)", "AUC"], rows)


def folds() -> str:
    """Loss of evidence that was counted with other folds and draws, next to one model with ten folds."""
    runs = pl.read_csv(BENCHMARKS / "accuracy/folds.csv", infer_schema_length=None).cast({"folds": pl.String})
    plain = runs.filter(models=1, folds="10").select("table", "seed", pl.col("validation_loss").alias("plain"))
    changes = runs.join(plain, on=["table", "seed"]).group_by("table", "models", "folds", "draws", maintain_order=True)
    found = changes.agg((100 * (pl.col("validation_loss") / pl.col("plain") - 1)).mean().alias("change"))
    tables = found["table"].unique(maintain_order=True).to_list()
    rows = []
    for (models, n_folds, draws), part in found.group_by("models", "folds", "draws", maintain_order=True):
        of_table = dict(part.select("table", "change").iter_rows())
        rows.append([str(models), str(n_folds), str(draws), *(f"{of_table[table]:+.1f} %" for table in tables)])
    return _table(["models", "folds", "draws", *tables], rows)


def dependencies() -> str:
    """MDL with and without its dependencies."""
    means = _test_means()
    rows = [
        [table, loss, _mean(means, table, "mdl", loss), _mean(means, table, "mdl-wo-dep", loss)]
        for table, loss in LOSSES.items()
    ]
    return _table(["table", "metric", "MDL", "without dependencies"], rows)


def missed_settings() -> str:
    """Tuned settings on the ML-Tag part, and better ones that the search missed, with and without dependencies."""
    by_hand = BENCHMARKS / "accuracy/ablation/ml-tag-part/batch-norm/results.csv"
    rows = []
    for settings, path in (("tuned", BENCHMARKS / "accuracy/results.csv"), ("by hand", by_hand)):
        runs = pl.read_csv(path, infer_schema_length=None).filter(
            dataset="ml-tag-part", variant="tuned", split="test", metric="logloss"
        )
        found = [runs.filter(model=model)["value"] for model in ("mdl", "mdl-wo-dep")]
        rows.append([settings, *(f"{values.mean():.4f} ± {values.std():.4f}" for values in found)])
    return _table(["settings", "MDL", "without dependencies"], rows)


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
    "highlights": highlights,
    "inner-steps": inner_steps,
    "inner-costs": inner_costs,
    "encoding": encoding,
    "training": training,
    "trees": trees,
    "folds": folds,
    "dependencies": dependencies,
    "missed-settings": missed_settings,
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


def _results() -> pl.DataFrame:
    return pl.read_csv(BENCHMARKS / "accuracy/results.csv", infer_schema_length=None)


def _means(runs: pl.DataFrame) -> pl.DataFrame:
    return runs.group_by("dataset", "model", "metric").agg(pl.col("value").mean())


def _test_means() -> pl.DataFrame:
    """Means over seeds of tuned models on test rows."""
    return _means(_results().filter(variant="tuned", split="test"))


def _chosen_runs() -> pl.DataFrame:
    """Test figures of the models in `CHOSEN`, with the settings of the lower validation loss."""
    results = _results()
    known = pl.DataFrame(
        [(model, variant) for model, variants in CHOSEN.items() for variant in variants],
        schema=["model", "variant"],
        orient="row",
    )
    losses = pl.col("metric").is_in(LOSSES.values()) & (pl.col("split") == "validation")
    held_out = results.filter(losses).group_by("dataset", "model", "variant").agg(pl.col("value").mean())
    best = held_out.join(known, on=["model", "variant"]).sort("value").group_by("dataset", "model").first()
    keys = ["dataset", "model", "variant"]
    return results.filter(split="test").join(best.select(keys), on=keys)


def _mean(means: pl.DataFrame, table: str, model: str, metric: str) -> str:
    return f"{means.filter(dataset=table, model=model, metric=metric)['value'].item():.4f}"


def _mean_loss(losses: pl.Series) -> str:
    """Mean over seeds; a word where a training diverged."""
    return "diverges" if losses.null_count() else f"{fmean(losses):.4f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(filled(path.read_text("utf-8")), "utf-8")

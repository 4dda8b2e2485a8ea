"""Make the tables of this benchmark's README from `results.csv`.

python benchmarks/tables/summary.py
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy.summary import insert
from loaders import SOURCES

HERE = Path(__file__).parent
OWN, RIVALS = "fielddep", ("lightgbm", "catboost")
MODELS = (OWN, *RIVALS)
LOSSES = ("logloss", "rmse")
FAR = 3.0
"""A loss this many per cent above that of the better trees counts as far above."""
AUC_BELOW, TIMES = 0.01, 5
"""The aim on wide tables: how far AUC may be below that of LightGBM, and how many times its time a fit may take."""
MARKS = ("<!-- tables: made by benchmarks/tables/summary.py -->", "<!-- end of tables -->")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """fielddep next to the better trees of a table, over the seeds that both have.

    Attributes:
        rival: the trees with the lower mean loss.
        percent: how far the mean loss of fielddep is above theirs; negative if below.
        gap: mean difference of the losses.
        error: standard error of the mean difference; zero for a single seed.
    """

    rival: str
    percent: float
    gap: float
    error: float

    @property
    def word(self) -> str:
        """Where fielddep stands: differences within one standard error are equal."""
        if abs(self.gap) <= self.error:
            return "equal"
        return "first" if self.gap < 0 else "behind"


def judge(losses: pl.DataFrame) -> Verdict | None:
    """Compare the losses of one table; None without fielddep or without trees."""
    by_seed = losses.pivot("model", index="seed", values="value").sort("seed")
    rivals = [name for name in RIVALS if name in by_seed.columns]
    if OWN not in by_seed.columns or not rivals:
        return None
    shared = by_seed.drop_nulls([OWN, *rivals])
    if shared.is_empty():
        return None
    rival = min(rivals, key=lambda name: float(shared[name].mean()))
    gaps = shared[OWN] - shared[rival]
    error = float(gaps.std()) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    gap = float(gaps.mean())
    return Verdict(rival=rival, percent=100 * gap / float(shared[rival].mean()), gap=gap, error=error)


def verdicts(results: pl.DataFrame) -> dict[str, Verdict]:
    """The verdict on every table that has one."""
    losses = results.filter(pl.col("metric").is_in(LOSSES))
    found = {str(table): judge(part) for (table,), part in losses.group_by(["table"], maintain_order=True)}
    return {table: verdict for table, verdict in found.items() if verdict is not None}


def markdown(heads: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *lines))


def in_order(results: pl.DataFrame) -> list[str]:
    """Tables with results, in the order of the loaders."""
    found = set(results["table"])
    return [name for name in SOURCES if name in found]


def loss_table(results: pl.DataFrame) -> str:
    """One line per table: the loss of every model, and the verdict."""
    judged = verdicts(results)
    lines = []
    for table in in_order(results):
        part = results.filter(pl.col("metric").is_in(LOSSES), table=table)
        figures = [_figure(part.filter(model=model)["value"]) for model in MODELS]
        verdict = judged.get(table)
        told = ["", ""] if verdict is None else [f"{verdict.percent:+.1f} %", verdict.word]
        lines.append([table, SOURCES[table].kind, part["metric"][0], *figures, *told])
    return markdown(["table", "kind", "loss", *MODELS, "fielddep / better trees", "fielddep is"], lines)


def _figure(values: pl.Series) -> str:
    """Mean and standard deviation with four significant digits of the mean."""
    if values.is_empty():
        return ""
    mean, std = float(values.mean()), values.std()
    digits = max(0, 3 - math.floor(math.log10(abs(mean)))) if mean else 4
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def other_table(results: pl.DataFrame) -> str:
    """The means of all other metrics."""
    lines = []
    others = results.filter(~pl.col("metric").is_in(LOSSES))
    for table in in_order(results):
        for (metric,), part in others.filter(table=table).group_by(["metric"], maintain_order=True):
            lines.append([table, str(metric), *(_figure(part.filter(model=model)["value"]) for model in MODELS)])
    return markdown(["table", "metric", *MODELS], lines)


def cost_table(results: pl.DataFrame) -> str:
    """One line per table: mean seconds and processor seconds of a fit, and the largest memory."""
    runs = results.unique(["table", "model", "seed"], maintain_order=True)
    costs = runs.group_by("table", "model").agg(pl.col("seconds", "cpu_seconds").mean(), pl.col("peak_mb").max())
    found = {(row["table"], row["model"]): row for row in costs.to_dicts()}
    lines = []
    for table in in_order(results):
        of_model = [found.get((table, model)) for model in MODELS]
        cells = [
            " / ".join("-" if row is None else f"{row[key]:.{digits}f}" for row in of_model)
            for key, digits in (("seconds", 1), ("cpu_seconds", 1), ("peak_mb", 0))
        ]
        lines.append([table, *cells, _cost_ratio(of_model)])
    of_models = " / ".join(MODELS)
    heads = [f"seconds: {of_models}", "CPU seconds", "peak MB", "CPU of fielddep / of both trees"]
    return markdown(["table", *heads], lines)


def _cost_ratio(of_model: list[dict[str, float] | None]) -> str:
    """Processor time of fielddep as a multiple of the sum of both trees."""
    own, *trees = (None if row is None else row["cpu_seconds"] for row in of_model)
    if own is None or None in trees:
        return ""
    return f"{own / sum(seconds for seconds in trees if seconds is not None):.2f}"


def source_table(results: pl.DataFrame) -> str:
    """What every table holds."""
    facts = [(name, SOURCES[name]) for name in in_order(results)]
    lines = [[name, s.kind, s.task, f"{s.rows:,}", str(s.columns), s.about] for name, s in facts]
    return markdown(["table", "kind", "task", "rows", "columns", "what is predicted"], lines)


def counts(results: pl.DataFrame) -> str:
    """How many tables with figures of all models fielddep is first or equal on, and on how many it is far behind."""
    complete = results.filter(pl.col("model").n_unique().over("table") == len(MODELS))
    judged = verdicts(complete)
    if not judged:
        return "No table has figures of fielddep and of both trees yet."
    far = [f"{name} ({verdict.percent:+.1f} %)" for name, verdict in judged.items() if verdict.percent > FAR]
    good = sum(verdict.word != "behind" for verdict in judged.values())
    named = f": {', '.join(far)}" if far else ""
    return (
        f"Of {len(judged)} tables, fielddep is first or equal on {good}, and more than {FAR:.0f} % above the better "
        f"trees on {len(far)}{named}."
    )


def wide_notes(results: pl.DataFrame) -> str:
    """Whether wide tables reach their aim next to LightGBM, over the seeds that both have; empty without figures."""
    lines = []
    for table in (name for name in in_order(results) if SOURCES[name].kind == "wide"):
        part = results.filter(pl.col("model").is_in([OWN, "lightgbm"]), table=table, metric="auc")
        shared = part.filter(pl.col("model").n_unique().over("seed") == 2)
        if not shared.is_empty():
            lines.append(_wide_note(table, shared))
    aim = f"an AUC at most {AUC_BELOW} below that of LightGBM, in at most {TIMES} times its time"
    return "\n".join([f"Hundreds of columns. The aim is {aim}.", "", *lines]) if lines else ""


def _wide_note(table: str, shared: pl.DataFrame) -> str:
    own, trees = (
        {key: float(shared.filter(model=model)[key].mean()) for key in ("value", "seconds", "cpu_seconds")}
        for model in (OWN, "lightgbm")
    )
    above = own["value"] - trees["value"]
    seconds, cpu_seconds = (own[key] / trees[key] for key in ("seconds", "cpu_seconds"))
    failures = {"AUC": above < -AUC_BELOW, "seconds": seconds > TIMES, "processor seconds": cpu_seconds > TIMES}
    missed = [name for name, is_missed in failures.items() if is_missed]
    told = f"missed by {' and '.join(missed)}" if missed else "reached"
    return (
        f"- {table}: {told}. AUC {own['value']:.4f} against {trees['value']:.4f} ({above:+.4f}), {seconds:.1f} times "
        f"the seconds, {cpu_seconds:.1f} times the processor seconds."
    )


def note(results: pl.DataFrame) -> str:
    """How the figures were measured, and which have fewer seeds than the others."""
    seeds = results.group_by("table", "model", maintain_order=True).agg(pl.col("seed").n_unique())
    most = seeds["seed"].max()
    fewer = [f"{row['model']} on {row['table']} ({row['seed']})" for row in seeds.to_dicts() if row["seed"] != most]
    fewer += [f"{model} on {table} (none, so it is not counted above)" for table, model in _absent(results)]
    told = f" Fewer seeds: {', '.join(fewer)}." if fewer else ""
    threads, commits = (
        ", ".join(results[name].unique(maintain_order=True).cast(pl.String)) for name in ("threads", "commit")
    )
    libraries = ", ".join(results["library"].unique().sort())
    return (
        f"Test rows; mean ± standard deviation over {most} seeds, each with its own split.{told} "
        f"{threads} threads, {libraries}; commits {commits}."
    )


def _absent(results: pl.DataFrame) -> list[tuple[str, str]]:
    """Tables with results but without those of a model, and the model."""
    found = set(results.select("table", "model").iter_rows())
    tables = in_order(results)
    return [(table, model) for table in tables for model in MODELS if (table, model) not in found]


def text(results: pl.DataFrame) -> str:
    """The text between the marks of the README."""
    parts = [counts(results), loss_table(results), note(results), "Other metrics:", other_table(results)]
    parts += ["What a fit costs:", cost_table(results)]
    wide = wide_notes(results)
    parts += [*([wide] if wide else []), "The tables:", source_table(results)]
    return "\n\n".join(parts)


def read(path: Path) -> pl.DataFrame:
    """All figures, in the order of the file; those of a table that has another number of rows now do not count."""
    found = pl.read_csv(path, infer_schema_length=None, schema_overrides={"commit": pl.String})
    rows = {name: source.rows for name, source in SOURCES.items()}
    return found.filter(pl.col("rows") == pl.col("table").replace_strict(rows, default=None, return_dtype=pl.Int64))


def main() -> None:
    page = HERE / "README.md"
    body = text(read(HERE / "results.csv"))
    page.write_text(insert(page.read_text("utf-8"), body, MARKS), "utf-8")
    print(body)


if __name__ == "__main__":
    main()

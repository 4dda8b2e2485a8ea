"""Judge the committed figures again, after a change to how claims are judged or models are tested.

    python benchmarks/accuracy/judge.py

Nothing is trained. These files are made again from the figures next to them:

    ablation/TABLE/WHAT-claims.csv        the verdicts, from WHAT.csv; also those in WHAT.md and in ablation/README.md
    ablation/TABLE/variants.md, .tex      the tests in them, from variants.csv
    ablation/TABLE/*/dunnett-METRIC.md    the tests, from results.csv
    comparison/TABLE/dunnett-METRIC.*     the tests, from comparison.csv
    comparison/TABLE/comparison.md        the note on threads, from ../../results.csv
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import ablate
from fielddep.config.metrics import METRICS
from fielddep.config.settings import Config, read_toml
from fielddep.experiments.ablation.ablate import Answer, claims_csv
from fielddep.experiments.ablation.plan import (
    EVALUATED_STEPS,
    LAYERS,
    PAPER_LAYERS,
    PAPER_STEPS,
    TRAINED_STEPS,
    VARIANT,
    ZETA,
    Point,
    Sweep,
    Training,
    Value,
)
from fielddep.experiments.ablation.tables import grids_of
from fielddep.experiments.ablation.trainings import SweepResult
from fielddep.experiments.compare import machine_note
from fielddep.experiments.rendering import SUFFIXES, Grid, render
from fielddep.experiments.results import from_frame
from fielddep.experiments.significance import DunnettTable, Summary, dunnett_from_summary
from fielddep.experiments.tables import ComparisonTable

HERE = Path(__file__).parent
CONTROL = "mdl"
MACHINE = re.compile(r"^(?:Every run|Runs) had .*$", re.MULTILINE)
CLAIMS = re.compile(r"(?<=:\n\n)(?:- \*\*.*\n)+")
NOTES = r"(?:\n(?:One-way ANOVA|Dunnett's test pools|the \d+ runs).*\n)*"
TESTS = {
    ".md": re.compile(r"^Dunnett's test \(one-sided\).*\n\n(?:\|.*\n)+" + NOTES, re.MULTILINE),
    ".tex": re.compile(r"\\begin\{table\}\[ht\]\n\\centering\n\\caption\{Dunnett(?s:.*?)\\end\{table\}\n"),
}


def judge_ablation(folder: Path) -> None:
    """Claims of every question of an ablation, and the tests between its variants."""
    tuned = read_toml(folder / "mdl.toml").get("model.sparsity", Config().model.sparsity)
    controls = {VARIANT: CONTROL, EVALUATED_STEPS: PAPER_STEPS, TRAINED_STEPS: PAPER_STEPS, LAYERS: PAPER_LAYERS}
    for path in sorted(folder.glob("*-claims.csv")):
        figures = pl.read_csv(folder / path.name.replace("-claims", ""), schema_overrides={"setting_value": pl.String})
        sweeps = tuple(
            sweep_result(part, controls.get(setting, tuned))
            for (setting,), part in figures.group_by(["setting"], maintain_order=True)
            if setting != ZETA
        )
        answer = Answer(question=sweeps[0].sweep.question, sweeps=sweeps)
        path.write_text(claims_csv(answer), "utf-8")
        page = path.with_name(f"{answer.question}.md")
        listed = "".join(claim.to_markdown() + "\n" for claim in answer.claims)
        replace(page, CLAIMS, [listed])
        replace_tests(page, [grid for s in sweeps if s.sweep.setting == VARIANT for grid in grids_of(s)[1:]])


def sweep_result(figures: pl.DataFrame, control: Value) -> SweepResult:
    """The runs of a setting, from one row per figure."""
    dataset, question, setting = figures.row(0)[:3]
    texts = figures["setting_value"].unique(maintain_order=True).to_list()
    values = texts if setting == VARIANT else [int(text) if text.isdigit() else float(text) for text in texts]
    points = tuple(
        Point(value=value, training=Training(name=text, config=Config()))
        for text, value in zip(texts, values, strict=True)
    )
    renamed = figures.rename({"setting_value": "model"})
    runs = {(run.model, run.seed): run for run in from_frame(renamed)}
    return SweepResult(
        dataset=dataset,
        sweep=Sweep(question=question, setting=setting, points=points, control=control),
        runs=runs,
        n_seeds=figures["seed"].n_unique(),
    )


def replace_tests(page: Path, grids: Sequence[Grid]) -> None:
    """Replace the tables of tests in a page and in its LaTeX twin."""
    replace(page, TESTS[".md"], [grid.to_markdown() for grid in grids])
    replace(page.with_suffix(".tex"), TESTS[".tex"], [grid.to_latex() for grid in grids])


def replace(path: Path, pattern: re.Pattern[str], fresh: list[str]) -> None:
    """Replace every match, in order."""
    text, texts = path.read_text("utf-8"), iter(fresh)
    n_found = len(pattern.findall(text))
    if n_found != len(fresh):
        raise SystemExit(f"expected {len(fresh)} places to replace in {path}, found {n_found}")
    path.write_text(pattern.sub(lambda _: next(texts), text), "utf-8")


def judge_runs(folder: Path) -> None:
    """Tests of a comparison that was run along with an ablation."""
    results = from_frame(pl.read_csv(folder / "results.csv", infer_schema_length=None))
    tests = ComparisonTable.of(results, control=CONTROL).tests
    for path in folder.glob("dunnett-*.md"):
        path.write_text(render(tests[path.stem.removeprefix("dunnett-")], "markdown"), "utf-8")


def judge_comparison(folder: Path) -> None:
    """Tests of a comparison, from its means and spreads."""
    rows = pl.read_csv(folder / "comparison.csv", infer_schema_length=None).to_dicts()
    for metric in METRICS:
        if f"{metric}_mean" in rows[0]:
            test = dunnett_of(rows, metric)
            for form, suffix in SUFFIXES.items():
                (folder / f"dunnett-{metric}{suffix}").write_text(render(test, form), "utf-8")
    results = pl.read_csv(HERE / "results.csv", infer_schema_length=None)
    runs = from_frame(results.filter(dataset=rows[0]["dataset"], variant="tuned"))
    replace(folder / "comparison.md", MACHINE, [machine_note(runs)])


def dunnett_of(rows: list[dict[str, Any]], metric: str) -> DunnettTable:
    """Tests of one metric, from one row per model."""
    summaries = {
        row["model"]: Summary(mean=row[f"{metric}_mean"], sd=row[f"{metric}_sd"] or 0.0, n=row["finished"])
        for row in rows
        if row[f"{metric}_mean"] is not None
    }
    table = dunnett_from_summary(summaries, metric=metric, better=METRICS[metric].better, control=CONTROL)
    return dataclasses.replace(table, dataset=rows[0]["dataset"])


def main() -> None:
    """Judge everything that is committed."""
    for folder in sorted(path.parent for path in ablate.ABLATION.glob("*/mdl.toml")):
        judge_ablation(folder)
    for path in sorted(ablate.ABLATION.glob("*/*/results.csv")):
        judge_runs(path.parent)
    for path in sorted((HERE / "comparison").glob("*/comparison.csv")):
        judge_comparison(path.parent)
    ablate.write_readme()


if __name__ == "__main__":
    main()

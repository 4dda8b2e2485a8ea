"""Files of a comparison: its figures and tables, and what one must know to read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from fielddep.experiments.plan import SEARCHES, Plan
from fielddep.experiments.rendering import SUFFIXES, render
from fielddep.experiments.results import RunResult, to_frame
from fielddep.experiments.search import TRIALS
from fielddep.experiments.tables import ComparisonTable
from fielddep.experiments.tree_configs import TREE_CONFIGS
from fielddep.experiments.trial_records import PRUNED
from fielddep.files import write_text
from fielddep.training.metrics import N_CALIBRATION_BINS

RESULTS, COMPARISON, DUNNETT = "results.csv", "comparison", "dunnett"


def write_tables(folder: Path, results: Sequence[RunResult], table: ComparisonTable, plan: Plan) -> None:
    """All figures as a tidy CSV, and the tables in every form; Markdown also says how to read them."""
    write_text(folder / RESULTS, to_frame(results).write_csv())
    for form, suffix in SUFFIXES.items():
        text = render(table, form)
        notes = "\n" + "\n\n".join(reading_notes(folder, results, table, plan)) + "\n" if form == "markdown" else ""
        write_text(folder / f"{COMPARISON}{suffix}", text + notes)
        for metric, test in table.tests.items():
            write_text(folder / f"{DUNNETT}-{metric}{suffix}", render(test, form))


def reading_notes(folder: Path, results: Sequence[RunResult], table: ComparisonTable, plan: Plan) -> list[str]:
    """What the columns mean, and how the settings came about."""
    notes = [" ".join(filter(None, [settings_note(plan), trials_note(folder / SEARCHES, plan)]))]
    if "calibration_error" in table.metrics:
        notes.append(
            f"Calibration error: expected calibration error over {N_CALIBRATION_BINS} bins of equally many test rows."
        )
    notes.append(
        "Training time includes the evaluations on validation rows, rows/s does not; prediction time is that of all "
        "test rows, from ids to outputs; peak memory is that of a process that does nothing but the run, Python and "
        "its libraries included."
    )
    notes.append(machine_note(results))
    if any(result.model in TREE_CONFIGS for result in results):
        notes.append(
            "Tree models get the same encoded rows: ids as categories, numbers as numbers, without crosses, as trees "
            "find their own. Their parameters are leaves and splits (CatBoost's statistics of values not counted), "
            "and their rows/s counts every row once a tree, evaluations included."
        )
    return list(filter(None, notes))


def trials_note(searches: Path, plan: Plan) -> str:
    """How many trials each model had within the budget; a slow one has few."""
    told = []
    for model in plan.searched_models():
        path = searches / model / TRIALS
        if not path.is_file():  # its search failed
            continue
        states = pl.read_csv(path, columns=["state"])["state"]
        n_pruned = int((states == PRUNED).sum())
        told.append(f"{model} {len(states)}" + (f" ({n_pruned} pruned)" if n_pruned else ""))
    return f"Trials: {', '.join(told)}; the first has the defaults." if told else ""


def machine_note(results: Sequence[RunResult]) -> str:
    """What the finished runs had to compute with, as they tell; older ones do not."""
    models: dict[str, dict[str, None]] = {}
    for result in results:
        if result.error is None:
            models.setdefault(_means(result), {})[result.model] = None
    if len(models) == 1:
        return f"Every run had {next(iter(models))}."
    told = "; ".join(f"{means} ({', '.join(names)})" for means, names in models.items())
    return f"Runs had {told}: times can be compared only where this is equal." if told else ""


def _means(result: RunResult) -> str:
    if result.threads is None:
        return "a number of threads that is not known"
    threads = f"{result.threads} thread{'s' if result.threads != 1 else ''}"
    return threads if result.device in (None, "cpu") else f"{threads} and the device {result.device}"


def settings_note(plan: Plan) -> str:
    """How the settings came about."""
    named = [contender.name for contender in plan.contenders if plan.settings_file(contender) is not None]
    notes = []
    if named:
        assert plan.configs is not None
        notes.append(f"The settings of {', '.join(named)} are those of {plan.configs.name}/.")
    if len(named) < len(plan.contenders):
        others = "Other models" if named else "All models"
        if plan.budget is None:
            notes.append(f"{others} have their defaults.")
        else:
            notes.append(
                f"The settings of {others.lower()} were searched on validation rows, each with {_budget(plan)}."
            )
    return " ".join(notes)


def _budget(plan: Plan) -> str:
    assert plan.budget is not None
    minutes = "" if plan.budget.minutes is None else f" or {plan.budget.minutes:g} minutes, whichever came first"
    slow = {model: n for model, n in plan.slow_rows.items() if model in plan.searched_models()}
    rows = "" if plan.search_rows is None else f", on at most {plan.search_rows:,} training rows"
    if slow:
        told = "; ".join(f"{model}, which is slow, on at most {n:,} of them" for model, n in slow.items())
        rows = f"{rows or ', on all training rows'}; {told}"
    return f"{plan.budget.trials} trials{minutes}{rows}"

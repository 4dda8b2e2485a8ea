"""Comparison: every model with its tuned settings and several seeds on the same rows, each run in its own process.

    comparison.json     which rows are compared
    search/MODEL/       the search of a model's settings
    configs/MODEL.toml  the settings it was run with
    runs/MODEL-N.json   the result of seed N, and what it was made from
    logs/               what the processes printed
    results.csv         all figures; comparison.* and dunnett-METRIC.* are the tables made from them

An interrupted comparison resumes where it stopped, and so does one whose time was up. A run that failed is recorded
with its reason, loses no other, and is tried again by the next call. Models that only an earlier call named stay in
results and tables as long as this call would give them the same settings; a note names the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from fielddep.artifacts.run import source_version
from fielddep.config import TREES
from fielddep.errors import SplitError, UserError
from fielddep.experiments.folder import COMPARISON, mark_folder, working_in
from fielddep.experiments.jobs import FAILED_SUFFIX, Job, read_saved, run_jobs
from fielddep.experiments.plan import CONFIGS, RUNS, SEARCHES, Deadline, Plan, Workspace, known_contender, settings_toml
from fielddep.experiments.rendering import SUFFIXES, render
from fielddep.experiments.results import RunResult, to_frame
from fielddep.experiments.search import TRIALS, Tuning
from fielddep.experiments.study import PRUNED
from fielddep.experiments.tables import ComparisonTable
from fielddep.observer import Observer
from fielddep.store.store import Store
from fielddep.tables.files import write_text
from fielddep.training.metrics import N_CALIBRATION_BINS
from fielddep.wording import count

RESULTS, COMPARISON_TABLE, DUNNETT = "results.csv", "comparison", "dunnett"
CONTROL = "mdl"
"""The model that others are tested against by default."""


def compare(
    dataset: str,
    store: Store,
    folder: str | Path,
    plan: Plan,
    *,
    control: str | None = None,
    observer: Observer | None = None,
) -> ComparisonTable:
    """Search, run and test whatever is missing, and write the tables.

    The others are tested against the control, a model of the plan or of an earlier call. The default is MDL; without
    MDL there are no tests.

    Raises:
        UserError: the folder holds something else or is in use, the store has no test rows, the control is not among
            the models, or settings cannot be read.
    """
    folder = Path(folder)
    check_control(control, folder, plan)
    work = Workspace(
        dataset=dataset,
        store=store,
        folder=folder,
        plan=plan,
        observer=observer or Observer(),
        deadline=Deadline.after(plan.minutes),
    )
    with working_in(folder, COMPARISON):
        results = _run(work)
        if not results:
            raise UserError(
                f"no run ended before time was up; given --minutes {plan.minutes:g}. Give more, or call again without "
                "it to continue"
            )
        table = ComparisonTable.of(results, control=control or CONTROL)
        notes = (*table.notes, *_not_run(plan, results), *_skipped_models(folder, results))
        table = dataclasses.replace(table, notes=notes)
        write_tables(folder, results, table, plan)
    return table


def _run(work: Workspace) -> list[RunResult]:
    """All results, model by model, after the missing runs; then those of other models from earlier calls."""
    require_test_rows(work.store, "a comparison")
    mark_folder(work.folder, work.dataset, work.store.sha256, COMPARISON)
    tuning = Tuning(work=work)
    chosen = tuning.run()
    failures: dict[str, str] = {}
    for name, settings in chosen.items():
        if settings.failure is None:
            write_text(work.folder / CONFIGS / f"{name}.toml", settings_toml(settings.config))
        else:  # the file stays as it is, for the runs of an earlier call
            failures[name] = f"the search for its settings failed: {settings.failure}"
    commit = source_version()
    jobs = [  # seed by seed, so that an interrupted comparison has complete tables of fewer seeds
        Job.of(work, name, seed, settings, commit=commit)
        for seed in range(work.plan.n_seeds)
        for name, settings in chosen.items()
    ]
    results = run_jobs(jobs, work, failures=failures)
    names = [contender.name for contender in work.plan.contenders]
    return [*sorted(results, key=lambda result: names.index(result.model)), *_earlier_results(work, tuning)]


def _not_run(plan: Plan, results: Iterable[RunResult]) -> list[str]:
    """A note on runs of the plan that have no result, because time was up."""
    done = {(result.model, result.seed) for result in results}
    found = []
    for contender in plan.contenders:
        seeds = [seed for seed in range(plan.n_seeds) if (contender.name, seed) not in done]
        if seeds:
            listed = "all seeds" if len(seeds) == plan.n_seeds else f"seed {', '.join(map(str, seeds))}"
            found.append(f"{contender.name} ({listed})")
    if not found or plan.minutes is None:
        return []
    return [
        f"not run, because {plan.minutes:g} minutes were over: {', '.join(found)}. The same command without --minutes "
        "continues"
    ]


def require_test_rows(store: Store, what: str) -> None:
    """Refuse a store without test rows."""
    if not store.n_rows_of["test"]:
        raise SplitError(
            f"{what} measures on test rows, but {store.folder} has none; encode again with split.test above 0"
        )


def _skipped_models(folder: Path, results: Iterable[RunResult]) -> list[str]:
    """A note on models of earlier calls that are not among the results."""
    shown = {result.model for result in results}
    names = [name for name in finished_models(folder) if name not in shown]
    if not names:
        return []
    return [f"not shown: {', '.join(names)}, whose runs in {RUNS}/ are of other settings, or of another budget"]


def _earlier_results(work: Workspace, tuning: Tuning) -> list[RunResult]:
    """Finished runs of models outside the plan, with the settings that this call would give them."""
    planned = {contender.name for contender in work.plan.contenders}
    others = [known_contender(name) for name in finished_models(work.folder) if name not in planned]
    known = [(c.name, found) for c in others if c is not None and (found := tuning.known_settings(c)) is not None]
    jobs = [Job.of(work, name, seed, found) for name, found in known for seed in range(work.plan.n_seeds)]
    return [result for job in jobs if (result := job.saved()) is not None and result.error is None]


def check_control(control: str | None, folder: Path, plan: Plan) -> None:
    """Refuse a control that is neither in the plan nor among the models of an earlier call."""
    names = compared_models(folder, plan)
    if control is not None and control not in names:
        raise UserError(
            f"expected a control among the models ({', '.join(names)}), given {control!r}; add it to --models, or "
            "choose another --control"
        )


def compared_models(folder: Path, plan: Plan) -> list[str]:
    """The models of a plan, and those with finished runs in the folder."""
    return list(dict.fromkeys([*(contender.name for contender in plan.contenders), *finished_models(folder)]))


def finished_models(folder: Path) -> list[str]:
    """Models with finished runs in the folder of a comparison."""
    files = sorted(file for file in folder.glob(f"{RUNS}/*.json") if not file.name.endswith(FAILED_SUFFIX))
    results = [found[1] for file in files if (found := read_saved(file)) is not None]
    return list(dict.fromkeys(result.model for result in results if result.error is None))


def write_tables(folder: Path, results: Sequence[RunResult], table: ComparisonTable, plan: Plan) -> None:
    """All figures as a tidy CSV, and the tables in every form; Markdown also has notes on how to read them."""
    write_text(folder / RESULTS, to_frame(results).write_csv())
    for form, suffix in SUFFIXES.items():
        text = render(table, form)
        notes = "\n" + "\n\n".join(reading_notes(folder, results, table, plan)) + "\n" if form == "markdown" else ""
        write_text(folder / f"{COMPARISON_TABLE}{suffix}", text + notes)
        for metric, test in table.tests.items():
            write_text(folder / f"{DUNNETT}-{metric}{suffix}", render(test, form))


def reading_notes(folder: Path, results: Sequence[RunResult], table: ComparisonTable, plan: Plan) -> list[str]:
    """What the columns mean, and where the settings come from."""
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
    if any(result.model in TREES for result in results):
        notes.append(
            "Tree models get the same encoded rows: ids as categories, numbers as numbers, without crosses, as trees "
            "find their own. Their parameters are leaves and splits (CatBoost's statistics of values not counted), "
            "and their rows/s counts every row once a tree, evaluations included."
        )
    notes.append(trees_note(results))
    return list(filter(None, notes))


def trials_note(searches: Path, plan: Plan) -> str:
    """How many trials each model had within the budget; a slow one had few."""
    found = []
    for model in plan.searched_models():
        path = searches / model / TRIALS
        if not path.is_file():  # its search failed
            continue
        states = pl.read_csv(path, columns=["state"])["state"]
        n_pruned = int((states == PRUNED).sum())
        found.append(f"{model} {len(states)}" + (f" ({n_pruned} pruned)" if n_pruned else ""))
    return f"Trials: {', '.join(found)}; the first has the defaults." if found else ""


def trees_note(results: Sequence[RunResult]) -> str:
    """Fewest and most trees in the runs of every tree model: whether a cap was reached."""
    found: dict[str, list[int]] = {}
    for result in results:
        if result.n_trees is not None:
            found.setdefault(result.model, []).append(result.n_trees)
    listed = ", ".join(f"{model} {min(trees):,} to {max(trees):,}" for model, trees in found.items())
    return f"Trees trained until early stopping or the cap: {listed}." if listed else ""


def machine_note(results: Sequence[RunResult]) -> str:
    """Threads and devices of the finished runs; old results do not have them."""
    models: dict[str, dict[str, None]] = {}
    for result in results:
        if result.error is None:
            models.setdefault(_resources(result), {})[result.model] = None
    if len(models) == 1:
        return f"Every run had {next(iter(models))}."
    listed = "; ".join(f"{resources} ({', '.join(names)})" for resources, names in models.items())
    return f"Runs had {listed}: only times with equal resources can be compared." if listed else ""


def _resources(result: RunResult) -> str:
    if result.threads is None:
        return "an unknown number of threads"
    threads = count(result.threads, "thread")
    return threads if result.device in (None, "cpu") else f"{threads} and the device {result.device}"


def settings_note(plan: Plan) -> str:
    """Where the settings come from."""
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
    slow = {model: n for model, n in plan.rows_by_model.items() if model in plan.searched_models()}
    rows = "" if plan.search_rows is None else f", on at most {plan.search_rows:,} training rows"
    if slow:
        listed = "; ".join(f"{model}, which is slow, on at most {n:,} of them" for model, n in slow.items())
        rows = f"{rows or ', on all training rows'}; {listed}"
    return f"{plan.budget.trials} trials{minutes}{rows}"

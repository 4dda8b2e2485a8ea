"""The recipes of Avazu, Criteo and KDD2012 from end to end: prepare, fit and evaluate, with time and memory.

    python benchmarks/size/recipes.py --scratch FOLDER
    python benchmarks/size/recipes.py --scratch FOLDER --recipes criteo --models mdl fm --rows 20000 --out trial.csv

For each data set: writes a generated file in the exact format of the published one, makes a store of it with the
recipe, trains each model for one epoch and evaluates it on the test rows, each in a fresh process. `recipes.csv` gets
one row per command. The values are generated, so the metrics show that everything works and say nothing about the real
data sets.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from measured import HERE, Measured, fielddep, folder_bytes, keep_rows, origin, script

N_ROWS = 2_000_000
RECIPES = ("avazu", "criteo", "kdd2012")
RAW, STORE = "raw", "recipe.store"
DISK_BYTES_A_ROW = 1_000
"""Raw file, work files, store and runs together, with some room."""
COLUMNS = (
    *("recipe", "n_rows", "what", "model", "n_fields", "n_categories", "d_embed", "batch", "threads"),
    *("rows", "seconds", "rows_per_s", "peak_mb", "raw_bytes", "store_bytes", "auc", "logloss"),
    *("machine", "commit", "command"),
)


def settings_of(given: list[str]) -> dict[str, str]:
    """Settings of the training; `--set` comes last and wins."""
    return {
        "train.max_epochs": "1",
        "train.eval_every": "1",
        "train.batch_size": "2048",
        "train.threads": "2",
        "model.d_embed": "20",
        **dict(setting.split("=", 1) for setting in given),
    }


def prepare(name: str, n_rows: int, scratch: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the raw file and make the store; returns the row of figures and the facts of the store."""
    script("raw_sample.py", name, f"{RAW}/{name}", "--rows", str(n_rows), cwd=scratch)
    took = fielddep("data", "prepare", name, "--raw", RAW, "--out", STORE, "--force", "--quiet", cwd=scratch)
    facts = json.loads(script("facts.py", STORE, cwd=scratch).output)
    sizes = {"raw_bytes": folder_bytes(scratch / RAW / name), "store_bytes": folder_bytes(scratch / STORE)}
    return {**_row("prepare", took, n_rows), **sizes}, facts


def train(model: str, settings: dict[str, str], facts: dict[str, Any], scratch: Path) -> list[dict[str, Any]]:
    """Fit and evaluate one model."""
    run = f"{model}.run"
    set_ = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    which = [] if model == "mdl" else ["--model", model]
    parts = facts["n_rows_of"]
    fitted = fielddep("fit", STORE, "--out", run, *which, "--force", "--quiet", *set_, cwd=scratch)
    evaluated = fielddep("evaluate", run, STORE, "--part", "test", "--json", cwd=scratch)
    metrics = {name: round(value, 5) for name, value in json.loads(evaluated.output).items() if name in COLUMNS}
    shape = {"d_embed": settings["model.d_embed"], "batch": settings["train.batch_size"]}
    common = {"model": model, "threads": settings["train.threads"], **shape}
    return [
        {**common, **_row("fit", fitted, parts["train"])},
        {**common, **_row("evaluate", evaluated, parts["test"]), **metrics},
    ]


def _row(what: str, took: Measured, n_rows: int) -> dict[str, Any]:
    """Figures of one command; `rows_per_s` covers the complete command, including the start of Python."""
    return {
        "what": what,
        "rows": n_rows,
        "seconds": round(took.seconds, 1),
        "rows_per_s": round(n_rows / took.seconds),
        "peak_mb": round(took.peak_mb, 1),
        "command": took.command,
    }


def measure(name: str, arguments: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """All commands of one data set."""
    row, facts = prepare(name, arguments.rows, scratch)
    rows = [row]
    for model in arguments.models:
        rows += train(model, settings_of(arguments.set), facts, scratch)
    common = {"recipe": name, "n_rows": arguments.rows, **origin()}
    common |= {"n_categories": facts["n_categories"], "n_fields": facts["n_fields"]}
    return [{column: {**row, **common}.get(column, "") for column in COLUMNS} for row in rows]


def clean(scratch: Path, models: list[str]) -> None:
    for folder in (RAW, STORE, *(f"{model}.run" for model in models)):
        shutil.rmtree(scratch / folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for raw files, stores and runs")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument(
        "--models", nargs="+", default=["mdl", "fm"], help="models to train, as `fit --model` names them"
    )
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of fit")
    parser.add_argument("--keep", action="store_true", help="keep what the last data set left")
    parser.add_argument("--out", type=Path, default=HERE / "recipes.csv")
    arguments = parser.parse_args()
    scratch = arguments.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(scratch).free < arguments.rows * DISK_BYTES_A_ROW:
        parser.error(f"{scratch} needs about {arguments.rows * DISK_BYTES_A_ROW / 1e9:.0f} GB of free disk")
    for name in arguments.recipes:
        clean(scratch, arguments.models)
        try:
            rows = measure(name, arguments, scratch)
        finally:
            if not arguments.keep:
                clean(scratch, arguments.models)
        keep_rows(arguments.out, rows, key=("recipe", "n_rows", "what", "model"))
        for row in rows:
            print("{recipe} {what} {model}: {seconds} s, {peak_mb} MB {auc}".format(**row), flush=True)


if __name__ == "__main__":
    main()

"""Training and evaluation from a store of many million rows: speed, memory, accuracy.

    python benchmarks/size/train.py --scratch FOLDER
    python benchmarks/size/train.py --scratch FOLDER --store clicks-40000000.store

Writes a synthetic click log and encodes it (or uses a store in FOLDER that `encode.py --keep` left there), trains one
epoch on its training rows and evaluates on its test rows, each in a fresh process. `train.csv` gets one row for `fit`
and one for `evaluate`. Next to the metrics of the model are those of the base rate (every row gets the click rate)
and of the true probability, which only the generator knows and no model can beat.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from measured import HERE, SETTINGS, Measured, fielddep, keep_rows, origin, script

N_ROWS = 13_000_000
"""Eight tenths of them are for training: more than ten million."""
RUN = "clicks.run"
COLUMNS = (
    *("what", "n_rows", "n_fields", "n_categories", "d_embed", "batch", "threads"),
    *("rows", "seconds", "train_seconds", "rows_per_s", "peak_mb"),
    *("auc", "logloss", "base_auc", "base_logloss", "best_auc", "best_logloss", "machine", "commit", "command"),
)


def make_store(n_rows: int, scratch: Path, categories: list[str]) -> Path:
    """Generate and encode; the table is deleted, the store stays."""
    table, store = scratch / f"clicks-{n_rows}.csv", scratch / f"clicks-{n_rows}.store"
    script("clicks.py", table.name, "--rows", str(n_rows), *categories, cwd=scratch)
    set_ = [word for setting in SETTINGS for word in ("--set", setting)]
    try:
        fielddep(
            "encode", table.name, "--target", "click", "--out", store.name, "--force", "--quiet", *set_, cwd=scratch
        )
    finally:
        table.unlink(missing_ok=True)
    return store


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Settings of the training; `--set` comes last and wins."""
    given = dict(setting.split("=", 1) for setting in arguments.set)
    return {
        "train.max_epochs": "1",
        "train.eval_every": "1",
        "train.batch_size": "2048",
        "train.threads": "2",
        "model.d_embed": "40",
        **given,
    }


def fit_row(took: Measured, facts: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Figures of `fit`, from its history and its metrics."""
    history = [json.loads(line) for line in (scratch / RUN / "history.jsonl").read_text("utf-8").splitlines()]
    last = history[-1]
    return {
        "what": "fit",
        "rows": round(facts["n_rows_of"]["train"] * last["epoch"]),
        "seconds": round(took.seconds, 1),
        "train_seconds": round(last["seconds"], 1),
        "rows_per_s": round(last["rows_per_s"]),
        "peak_mb": round(took.peak_mb, 1),
        "command": took.command,
    }


def evaluate_row(took: Measured, truth: dict[str, Any]) -> dict[str, Any]:
    """Figures of `evaluate`, with those of the base rate and of the true probability."""
    metrics = json.loads(took.output)
    return {
        "what": "evaluate",
        "rows": truth["n_rows_part"],
        "seconds": round(took.seconds, 1),
        "rows_per_s": round(truth["n_rows_part"] / took.seconds),
        "peak_mb": round(took.peak_mb, 1),
        "auc": round(metrics["auc"], 5),
        "logloss": round(metrics["logloss"], 5),
        "base_auc": 0.5,
        "base_logloss": round(truth["base_logloss"], 5),
        "best_auc": round(truth["best_auc"], 5),
        "best_logloss": round(truth["best_logloss"], 5),
        "command": took.command,
    }


def measure(store: Path, scratch: Path, settings: dict[str, str], categories: list[str]) -> list[dict[str, Any]]:
    """Fit, evaluate, and compare with the truth."""
    set_ = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    name = str(store.relative_to(scratch)) if store.is_relative_to(scratch) else str(store)
    facts = json.loads(script("facts.py", name, cwd=scratch).output)
    rows = [fit_row(fielddep("fit", name, "--out", RUN, "--force", "--quiet", *set_, cwd=scratch), facts, scratch)]
    print(f"fit: {rows[0]['rows_per_s']:,} rows/s, {rows[0]['peak_mb']} MB", flush=True)
    evaluated = fielddep("evaluate", RUN, name, "--part", "test", "--json", cwd=scratch)
    truth = json.loads(script("facts.py", name, "--part", "test", *categories, cwd=scratch).output)
    rows.append(evaluate_row(evaluated, truth))
    print("evaluate: {seconds} s, {peak_mb} MB, AUC {auc} (best {best_auc}), logloss {logloss} (base {base_logloss}, "
          "best {best_logloss})".format(**rows[1]))  # fmt: skip
    common = {"n_rows": facts["n_rows"], "n_categories": facts["n_categories"], "n_fields": facts["n_fields"]}
    shape = {"d_embed": settings["model.d_embed"], "batch": settings["train.batch_size"]}
    common |= {"threads": settings["train.threads"], **shape, **origin()}
    return [{name: {**row, **common}.get(name, "") for name in COLUMNS} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for table, store and run")
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--store", help="a store in the scratch folder, instead of making one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of fit")
    parser.add_argument("--categories", type=int, help="values of all fields; default: two million")
    parser.add_argument("--keep", action="store_true", help="keep store and run")
    parser.add_argument("--out", type=Path, default=HERE / "train.csv")
    arguments = parser.parse_args()
    scratch = arguments.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    categories = ["--categories", str(arguments.categories)] if arguments.categories else []
    store = scratch / arguments.store if arguments.store else make_store(arguments.rows, scratch, categories)
    try:
        rows = measure(store, scratch, settings_of(arguments), categories)
    finally:
        if not arguments.keep:
            shutil.rmtree(scratch / RUN, ignore_errors=True)
        if not (arguments.keep or arguments.store):
            shutil.rmtree(store, ignore_errors=True)
    keep_rows(arguments.out, rows, key=("what", "n_rows", "d_embed"))


if __name__ == "__main__":
    main()

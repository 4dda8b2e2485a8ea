"""The library itself and LightGBM on the tables of the accuracy benchmark, in a process of their own.

    python peers_local.py steps --data FILE.npz --d-embed 40 --batch-rows 2048
    python peers_local.py best fielddep-tuned --table frappe

`peers.py` calls it and reads the JSON of its last line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fielddep.config import Config
from fielddep.data.batch import FieldLayout
from fielddep.data.encoded import EncodedTable
from fielddep.data.splits import Split
from fielddep.fitting import Prepared, prepare, train_model
from fielddep.training.history import History
from programs import FieldDep
from shapes import Shape
from timing import peak_mb

sys.path.append(str(Path(__file__).resolve().parents[1] / "accuracy"))

import tables
import trees

ACCURACY = Path(tables.__file__).parent
load = tables.load
PROGRAMS = ("fielddep", "fielddep-tuned", "lightgbm", "lightgbm-tuned")


def encoded(table: tables.BenchTable, settings: dict[str, Any]) -> Prepared:
    """The table split as in the accuracy benchmark, and encoded by the library."""
    config = Config().replace({"data.target": table.target, "data.task": table.task, **settings})
    split = Split(train=table.rows("train"), validation=table.rows("validation"), test=table.rows("test"))
    return prepare(table.frame.select(*table.fields, table.target), config, split=split)


def has_settings(program: str, name: str) -> bool:
    """Whether a search chose settings for this program on this table; programs that are not tuned need none."""
    wanted = {"fielddep-tuned": f"mdl-{name}.toml", "lightgbm-tuned": f"lightgbm-{name}.json"}
    return program not in wanted or (ACCURACY / "configs" / wanted[program]).exists()


def best_fielddep(table: tables.BenchTable, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train with early stopping, as `fielddep fit` does."""
    start = time.perf_counter()
    prepared = encoded(table, {**settings, "train.seed": seed})
    prepare_s = time.perf_counter() - start
    history = History()
    train_model(prepared, history=history)
    last = history[-1]
    return {
        "curve": [(point.seconds, point.validation["loss"]) for point in history],
        "rows_per_s": last.epoch * len(prepared.split.train) / last.seconds,
        "prepare_s": round(prepare_s, 2),
        "batch_rows": prepared.config.train.batch_size,
    }


def tuned_settings(name: str) -> dict[str, Any]:
    """The settings that the search on validation rows chose."""
    config = Config.from_toml(ACCURACY / "configs" / f"mdl-{name}.toml").to_dict()
    return {f"{section}.{key}": value for section, values in config.items() for key, value in values.items()}


def best_lightgbm(table: tables.BenchTable, params: dict[str, Any], seed: int, threads: int) -> dict[str, Any]:
    """Train as the accuracy benchmark does, with the clock read after every tree.

    Rows per second count every training row once per tree.
    """
    import lightgbm as lgb

    start = time.perf_counter()
    data = trees.prepare(table)
    options: dict[str, Any] = {"feature_name": list(data.fields), "categorical_feature": list(data.categorical)}
    fixed = {**trees._FIXED, **params, "objective": "binary", "metric": "binary_logloss", "seed": seed}
    fixed["num_threads"] = threads
    train = lgb.Dataset(data.x["train"], data.y["train"], params=fixed, **options).construct()
    validation = lgb.Dataset(
        data.x["validation"], data.y["validation"], reference=train, params=fixed, **options
    ).construct()
    prepare_s = time.perf_counter() - start
    curve: list[tuple[float, float]] = []

    def note(environment: Any) -> None:
        curve.append((time.perf_counter() - start - prepare_s, float(environment.evaluation_result_list[0][2])))

    stop = lgb.early_stopping(trees.PATIENCE, verbose=False)
    lgb.train(fixed, train, trees.MAX_ROUNDS, valid_sets=[validation], callbacks=[note, stop])
    rows_per_s = len(data.y["train"]) * len(curve) / curve[-1][0]
    return {"curve": curve, "rows_per_s": rows_per_s, "prepare_s": round(prepare_s, 2)}


def best(program: str, name: str, seed: int, threads: int) -> dict[str, Any]:
    """Train one program on one table."""
    table = load(name)
    if program.startswith("fielddep"):
        settings = tuned_settings(name) if program == "fielddep-tuned" else {}
        return best_fielddep(table, settings, seed)
    params = trees.load_params(name) if program == "lightgbm-tuned" else {}
    return best_lightgbm(table, params, seed, threads)


def steps(data: dict[str, np.ndarray], d_embed: int, batch_rows: int, warm_up: int) -> dict[str, Any]:
    """Seconds of every training step of the library after the warm-up."""
    fields = {f"f{i}": int(n) for i, n in enumerate(data["sizes"])}
    program = FieldDep(Shape(name="peers", fields=fields, d_embed=d_embed, batch_rows=batch_rows))
    rows = table_of(data)
    seconds = []
    for start in range(0, len(rows) - batch_rows + 1, batch_rows):
        batch = rows.batch(slice(start, start + batch_rows))
        clock = time.perf_counter()
        program.train(batch)
        seconds.append(time.perf_counter() - clock)
    return {"seconds": seconds[warm_up:]}


def table_of(data: dict[str, np.ndarray]) -> EncodedTable:
    """Training rows of a file that `peers.py` wrote."""
    sizes = tuple(int(n) for n in data["sizes"])
    return EncodedTable(
        layout=FieldLayout(names=tuple(f"f{i}" for i in range(len(sizes))), n_ids=sizes),
        ids_RF=torch.from_numpy(data["train_ids"]),
        numbers_RN=torch.empty(len(data["train_y"]), 0),
        target_R=torch.from_numpy(data["train_y"]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["steps", "best"])
    parser.add_argument("program", nargs="?", choices=PROGRAMS, default="fielddep")
    parser.add_argument("--table", choices=tables.NAMES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--d-embed", type=int)
    parser.add_argument("--batch-rows", type=int, default=2048)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.what == "steps":
        found = steps(dict(np.load(given.data)), given.d_embed, given.batch_rows, given.warm_up)
    else:
        found = best(given.program, given.table, given.seed, given.threads)
    print(json.dumps({**found, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()

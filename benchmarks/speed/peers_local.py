"""fielddep and LightGBM on the tables of the accuracy benchmark, each in its own process.

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

from fielddep.config.settings import Config
from fielddep.config.trees import TreeConfig
from fielddep.encoding.rows import EncodedRows, Layout
from fielddep.experiments.plan import find_contender, read_settings
from fielddep.observer import Observer
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import train
from fielddep.training.prepare import Prepared
from programs import FieldDep
from shapes import Shape
from timing import peak_mb

sys.path.append(str(Path(__file__).resolve().parents[1] / "accuracy"))

import tables

ACCURACY = Path(tables.__file__).parent
MODELS = {"fielddep": "mdl", "lightgbm": "lightgbm"}
PROGRAMS = ("fielddep", "fielddep-tuned", "lightgbm", "lightgbm-tuned")


def encoded(name: str) -> Prepared:
    """A table of the accuracy benchmark as DeepCTR-Torch gets it, without crosses."""
    return tables.load(name).encoded(Config().replace({"data.crosses": "none"}))


def settings_file(program: str, name: str) -> Path | None:
    """File with the tuned settings of this program on this table; None for programs that are not tuned."""
    model, _, tuned = program.rpartition("-")
    return ACCURACY / "configs" / f"{MODELS[model]}-{name}.toml" if tuned == "tuned" else None


def has_settings(program: str, name: str) -> bool:
    """Whether a search chose settings for this program on this table; programs that are not tuned need none."""
    file = settings_file(program, name)
    return file is None or file.exists()


def config_of(program: str, name: str, seed: int, threads: int) -> Config:
    """Settings of a program: those that a search chose on validation rows, or the defaults."""
    file = settings_file(program, name)
    contender = find_contender(MODELS[program.removesuffix("-tuned")])
    chosen = {} if file is None else read_settings(file, contender)
    return contender.config({**chosen, "train.seed": seed, "train.threads": threads})


class Clock(Observer):
    """Records when every validation loss was known."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.curve: list[tuple[float, float]] = []

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Note it."""
        self.curve.append((time.perf_counter() - self.start, evaluation.validation["loss"]))


def best(table: tables.BenchTable, config: Config) -> dict[str, Any]:
    """Train one program with early stopping; for LightGBM every tree is an evaluation, and binning counts."""
    start = time.perf_counter()
    prepared = table.encoded(config)
    prepare_s = time.perf_counter() - start
    clock = Clock()
    trained = train(prepared, observer=clock)
    return {
        "curve": clock.curve,
        "rows_per_s": trained.rows_per_s,
        "prepare_s": round(prepare_s, 2),
        "batch_rows": None if isinstance(config.model, TreeConfig) else prepared.config.train.batch_size,
    }


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


def table_of(data: dict[str, np.ndarray]) -> EncodedRows:
    """Training rows of a file that `peers.py` wrote."""
    sizes = tuple(int(n) for n in data["sizes"])
    return EncodedRows(
        layout=Layout(names=tuple(f"f{i}" for i in range(len(sizes))), n_ids=sizes),
        arrays={"ids": data["train_ids"], "target": data["train_y"]},
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
        config = config_of(given.program, given.table, given.seed, given.threads)
        found = best(tables.load(given.table), config)
    print(json.dumps({**found, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()

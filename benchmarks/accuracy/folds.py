"""What do folds and several draws of them add? Trees on evidence that was counted in different ways.

    python benchmarks/accuracy/folds.py

Of every table, 60,000 rows with the split of `tables.py`. LightGBM has the settings that a blend gives it and sees
evidence and numbers, no categories. The combinations are chosen once per table, with ten folds. The loss is that of
the validation rows, which also stop the training, so it is a little too low for all variants alike. Rows are appended
to `folds.csv` one by one; what is in the file is not run again.

    one model       folds: how many; *own target* lets a training row see its own target
    four models     the mean of four models with other seeds: all on one draw of the folds, or each on its own draw
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import tables
from fielddep.artifacts.run import source_version
from fielddep.config.settings import Config
from fielddep.config.trees import BlendConfig
from fielddep.encoding.learn_evidence import counted_rows, learn_evidence, statements_of_rows
from fielddep.encoding.rows import EVIDENCE, FOLDS, PARTS
from fielddep.encoding.split import PART_NAMES
from fielddep.observer import Observer
from fielddep.training.metrics import mean_loss
from fielddep.training.prepare import Prepared
from fielddep.training.trees import train_trees

HERE = Path(__file__).parent
RESULTS = HERE / "folds.csv"
COLUMNS = ("table", "rows", "models", "folds", "draws", "seed", "validation_loss", "cpu_seconds", "commit")
KEY = COLUMNS[:6]
NAMES = ("frappe", "ml-tag-part", "flights", "ml-rating")
"""Tables whose rows are independent; folds of diabetes130 must keep patients together."""
MAX_ROWS = 60_000
N_SEEDS = 2
SINGLE_MODELS = ("own target", 2, 5, 10, 20)
N_MODELS = 4


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to count: so many models, folds (0: rows see their own target) and draws; and the seed of the first."""

    models: int
    folds: int
    draws: int
    seed: int

    @property
    def label(self) -> tuple[str, ...]:
        """As `folds.csv` has it."""
        return (str(self.models), str(self.folds or SINGLE_MODELS[0]), str(self.draws), str(self.seed))


def variants() -> Iterator[Variant]:
    """All of them, seed by seed."""
    for seed in range(N_SEEDS):
        for folds in SINGLE_MODELS:
            yield Variant(models=1, folds=folds if isinstance(folds, int) else 0, draws=1, seed=seed)
        for draws in (1, N_MODELS):
            yield Variant(models=N_MODELS, folds=10, draws=draws, seed=seed)


def sampled(name: str) -> Prepared:
    """Encoded rows of a table, at most `MAX_ROWS`."""
    table = tables.load(name)
    kept = np.sort(np.random.default_rng(1).permutation(table.frame.height)[:MAX_ROWS])
    return replace(table, frame=table.frame[kept], split=table.split[kept]).encoded(Config())


def counted(prepared: Prepared, n_folds: int, seed: int) -> Prepared:
    """The same rows with the evidence of other folds; with none, training rows are told like all others."""
    store, encoder = prepared.store, prepared.encoder
    rows, evidence = store.read(0, store.n_rows), encoder.evidence
    assert evidence is not None
    if n_folds:
        folds_R = np.random.default_rng([seed, n_folds]).integers(n_folds, size=store.n_rows).astype(np.uint8)
        arrays = {**rows.arrays, PARTS: store.parts(0, store.n_rows), FOLDS: folds_R}
        counting = counted_rows(
            [arrays],
            store.n_rows,
            encoder,
            in_order=False,
            min_rows=1,
            allocate=_array,
        )
        _, said = learn_evidence(counting, _array, evidence.combinations, 0)
        statements = statements_of_rows(said, 0, store.n_rows)
    else:
        statements = evidence.encode(rows.ids_RF, {f: rows.lists_R(f) for f in encoder.layout.lists})
    assert statements.shape == rows.arrays[EVIDENCE].shape
    return Prepared.of(replace(store, shards=store.shards.with_statements(statements)), prepared.config)


def _array(name: str, shape: tuple[int, ...], kind: str) -> npt.NDArray[np.generic]:
    return np.empty(shape, dtype=kind)


def loss_of(prepared: Prepared, variant: Variant) -> float:
    """Validation loss of the mean output of the models."""
    outputs = []
    for model in range(variant.models):
        draw = variant.seed * N_MODELS + (model if variant.draws > 1 else 0)
        rows = counted(prepared, variant.folds, draw)
        config = rows.config.replace({"train.seed": variant.seed * N_MODELS + model, "train.threads": 1})
        trees = train_trees(replace(rows, config=config), BlendConfig().trees(categories=False), Observer())
        validation = next(iter(rows.parts[PART_NAMES[1]].chunks()))
        outputs.append(trees.outputs(validation).double())
    target = torch.as_tensor(validation.target_R).double()
    loss = mean_loss(torch.stack(outputs).mean(dim=0), target, None, prepared.target.task)
    return float(loss) * prepared.target.loss_unit


def main() -> None:
    torch.set_num_threads(1)
    done = set()
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    for name in NAMES:
        prepared = sampled(name)
        n_rows = str(prepared.store.n_rows)
        for variant in variants():
            key = (name, n_rows, *variant.label)
            if key in done:
                continue
            start = time.process_time()
            loss = loss_of(prepared, variant)
            row = (*key, f"{loss:.6f}", f"{time.process_time() - start:.1f}", source_version())
            is_new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as file:
                csv.writer(file).writerows([COLUMNS, row] if is_new else [row])
            print(*row, flush=True)


if __name__ == "__main__":
    main()

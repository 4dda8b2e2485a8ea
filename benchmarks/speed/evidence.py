"""How fast are cells of combinations counted, and statements about every row made?

    python benchmarks/speed/evidence.py
    python benchmarks/speed/evidence.py --rows 2000000 --what count

Rows of Avazu's shape (22 fields, 2 million ids, skewed), of which eight tenths are for training; all values of one
field differ from those of the others in frequency only, so pairs and triples have as many cells as independent fields
can have. Measured are

- count: `learn_evidence` of all single fields and a random choice of pairs and triples, 100 combinations in all. It
  counts cells, chooses priors and makes the statements of all rows, which go to a file, as for a store on disk.
- choose: `choose_combinations` and counting what it chose, for 60,000 rows of 10 fields.
- encode: statements about 200,000 new rows, with the cells of `count`.

`peak_mb` is the memory beyond the rows (RssAnon, sampled), without the pages of the file. Results go to `evidence.csv`.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fielddep.encoding.choosing import choose_combinations
from fielddep.encoding.counting import Combination, CountedRows
from fielddep.encoding.evidence import Evidence
from fielddep.encoding.learn_evidence import N_FOLDS, learn_evidence
from fielddep.native import name
from results import HERE, origin, write_rows
from shapes import POSITIVE_SHARE, SEED, SHAPES, zipf_ids

EVIDENCE_CSV = HERE / "evidence.csv"
KEY = ("what", "kernels", "rows")
COLUMNS = (
    *KEY,
    *("fields", "combinations", "cells", "seconds", "cpu_seconds", "rows_per_s", "peak_mb"),
    *("threads", "machine", "commit"),
)
WHATS = ("count", "choose", "encode")
TRAIN_SHARE = 0.8
N_PAIRS, N_TRIPLES = 58, 20
SMALL_ROWS, SMALL_FIELDS, MAX_COMBINATIONS = 60_000, 10, 85
NEW_ROWS = 200_000

Row = dict[str, object]


def table_of(n_rows: int, n_ids: list[int], seed: int) -> CountedRows:
    """Skewed ids and a target that is 1 in a fifth of the rows."""
    rng = np.random.default_rng(seed)
    return CountedRows(
        columns=[zipf_ids(n, n_rows, rng) for n in n_ids],
        n_ids=n_ids,
        target_R=(rng.random(n_rows) < POSITIVE_SHARE).astype(np.float32),
        weight_R=None,
        parts_R=(rng.random(n_rows) > TRAIN_SHARE).astype(np.uint8),
        folds_R=rng.integers(0, N_FOLDS, n_rows).astype(np.uint8),
        in_order=False,
        task="binary",
        n_outputs=1,
    )


def combinations_of(n_fields: int) -> list[Combination]:
    """All single fields, and some pairs and triples."""
    rng = np.random.default_rng(SEED)
    found: list[Combination] = [(f,) for f in range(n_fields)]
    for size, n in ((2, N_PAIRS), (3, N_TRIPLES)):
        known = list(itertools.combinations(range(n_fields), size))
        found += [known[i] for i in sorted(rng.choice(len(known), n, replace=False))]
    return found


def anonymous_mb() -> float:
    """Resident memory that is not of files, in millions of bytes."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("RssAnon:"))


@contextmanager
def peak_mb() -> Iterator[Callable[[], float]]:
    """The largest memory within the block, beyond that at its start."""
    start, peak, done = anonymous_mb(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_mb() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak[0]
    finally:
        done.set()
        watcher.join()


def measured(work: Callable[[], Evidence], n_rows: int, n_fields: int) -> tuple[Evidence, Row]:
    """What the work returned, and its costs."""
    start, start_cpu = time.perf_counter(), time.process_time()
    with peak_mb() as peak:
        found = work()
    seconds = time.perf_counter() - start
    facts: Row = {
        "rows": n_rows,
        "fields": n_fields,
        "combinations": len(found.cells),
        "cells": found.n_cells,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(time.process_time() - start_cpu, 3),
        "rows_per_s": round(n_rows / seconds, 1),
        "peak_mb": round(peak(), 1),
    }
    print(", ".join(f"{key} {value:,}" for key, value in facts.items()), flush=True)
    return found, facts


def count(n_rows: int, scratch: Path) -> tuple[Evidence, Row]:
    """Count 100 combinations of a large table."""
    sizes = list(SHAPES["avazu"].fields.values())
    rows = table_of(n_rows, sizes, SEED)

    def allocate(name: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[np.float16]:
        return np.memmap(scratch / name, dtype=dtype, mode="w+", shape=shape)

    combinations = combinations_of(len(sizes))
    return measured(lambda: learn_evidence(rows, allocate, combinations, 0)[0], n_rows, len(sizes))


def choose() -> Row:
    """Choose and count for a small table."""
    rows = table_of(SMALL_ROWS, [5, 12, 30, 80, 200, 500, 1200, 3000, 7, 2000][:SMALL_FIELDS], SEED)

    def work() -> Evidence:
        found = choose_combinations(rows, MAX_COMBINATIONS)
        return learn_evidence(rows, lambda _, shape, dtype: np.empty(shape, dtype=dtype), found, 0)[0]

    return measured(work, SMALL_ROWS, SMALL_FIELDS)[1]


def encode(evidence: Evidence) -> Row:
    """Statements about new rows; the second time, as after a warm-up."""
    sizes = list(SHAPES["avazu"].fields.values())
    new = table_of(NEW_ROWS, sizes, SEED + 1)
    ids_RF = np.stack([column for column in new.columns if isinstance(column, np.ndarray)], axis=1)

    def work() -> Evidence:
        evidence.encode(ids_RF, {})
        return evidence

    measured(work, NEW_ROWS, len(sizes))
    return measured(work, NEW_ROWS, len(sizes))[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--what", nargs="+", choices=WHATS, default=WHATS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scratch", type=Path, help="folder for the statements while they are measured")
    parser.add_argument("--out", type=Path, default=EVIDENCE_CSV)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found: dict[str, Row] = {}
    if "choose" in arguments.what:
        found["choose"] = choose()
    if "count" in arguments.what or "encode" in arguments.what:
        with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
            evidence, found["count"] = count(arguments.rows, Path(folder))
        if "encode" in arguments.what:
            found["encode"] = encode(evidence)
    rows = [{"what": what, "kernels": name(), **facts, **origin()} for what, facts in found.items()]
    write_rows(arguments.out, rows, columns=COLUMNS, key=KEY)


if __name__ == "__main__":
    main()

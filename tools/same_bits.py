"""Do two checkouts encode and predict the same on this machine, bit for bit?

    python tools/same_bits.py OLD NEW

Both read the golden bundles of NEW with their own code, each in its own process. The ids and numbers of 10,000 odd rows
and the logits of the golden and the odd rows must be equal to the last bit, also row by row. Bits differ between
processors and numbers of threads, so the committed test of golden predictions allows for rounding; this does not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

GOLDEN = Path("tests", "golden")
N_ROWS, N_SINGLE = 10_000, 200
# Unseen and missing values, other spellings of known ones, numbers at the edges of bins and far outside.
ODD = {
    "colour": ["c0", "c1", "c2", "c3", " c1 ", "C1", "c9", "", "NA", None, "c\u00e9", "1", "1.0", "01", "x" * 500],
    "price": ["20", "20.0", " 2e1", "-0", "0.1", "1e30", "-1e30", "", "NaN", None, "19.999999999", "1e-320"],
    "age": ["18", "45", "45.0", "46", "79", "80", "-1", "", "null", None, "1e9", "45.5", "007"],
}


def odd_rows(seed: int = 0) -> pl.DataFrame:
    """Rows of text cells drawn from `ODD`."""
    rng = np.random.default_rng(seed)
    columns = {name: pl.Series(values, dtype=pl.String) for name, values in ODD.items()}
    return pl.DataFrame({name: column.gather(rng.integers(0, len(column), N_ROWS)) for name, column in columns.items()})


def record(golden: Path, out: Path) -> None:
    """Write ids, numbers and logits of the library in this process."""
    try:
        from fielddep.artifacts.predictor import Predictor
    except ImportError:  # version 0.1
        from fielddep.predictor import Predictor  # type: ignore[no-redef, import-not-found]
    module = sys.modules[Predictor.__module__].__file__
    assert str(module).startswith(os.environ["PYTHONPATH"]), f"{module} is not the library asked for"
    found = {}
    tables = {"golden": pl.read_csv(golden / "rows.csv", infer_schema=False), "odd": odd_rows()}
    for bundle in sorted(path.parent for path in golden.glob("bundle-v*/*/manifest.json")):
        predictor = Predictor(bundle)
        tables["single"] = tables["odd"].head(N_SINGLE)
        for name, table in tables.items():
            chunks = [table] if name != "single" else [table[i] for i in range(N_SINGLE)]
            rows = [row for chunk in chunks for row, _ in predictor.encoded(chunk)]
            found[f"{bundle.name} {name} ids"] = np.concatenate([np.asarray(row.ids_RF) for row in rows])
            found[f"{bundle.name} {name} numbers"] = np.concatenate([np.asarray(row.numbers_RN) for row in rows])
            logits = [predictor.logits(row).detach().numpy() for row in rows]
            found[f"{bundle.name} {name} logits"] = np.concatenate(logits)
    np.savez(out, **found)


def recorded(root: Path, golden: Path, out: Path) -> dict[str, np.ndarray]:
    """The record of the library in a checkout, made in its own process."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, "--record", str(golden), str(out)], check=True, env=environment)
    with np.load(out) as arrays:
        return dict(arrays)


def main() -> int:
    """Compare two checkouts; returns 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    given = parser.parse_args()
    if given.record:
        record(given.old, given.new)
        return 0
    golden = given.new.resolve() / GOLDEN
    with tempfile.TemporaryDirectory() as folder:
        old, new = (
            recorded(root.resolve(), golden, Path(folder, f"{name}.npz"))
            for name, root in (("old", given.old), ("new", given.new))
        )
    assert old.keys() == new.keys()
    differ = [name for name in old if old[name].dtype != new[name].dtype or old[name].tobytes() != new[name].tobytes()]
    for name in old:
        print(f"{'DIFFERS' if name in differ else 'equal'}  {name} {old[name].shape}")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())

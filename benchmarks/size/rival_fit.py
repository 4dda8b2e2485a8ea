"""Fit one model on a table of `next_to_rivals.py`, save it and measure it on the test rows; called in its own process.

    python benchmarks/size/rival_fit.py lightgbm clicks.parquet --target click --out model --threads 2

Time runs from the file to the saved model, so it includes reading and encoding. All models have their defaults and
stop early on the validation rows. fielddep reads the file in chunks into a store and trains from there. The trees get
every field as a category, in the form that takes least memory: codes of 32 bits.

Only the library that is measured is imported.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from importlib import metadata
from pathlib import Path
from typing import Any

PATIENCE = 100
"""Trees without a lower validation loss; both tree libraries would else train all of `--trees`."""
SMALLEST = 1e-15
"""Smallest probability of a class in a log loss."""
PART = "part"


def fit_fielddep(given: argparse.Namespace) -> dict[str, Any]:
    """Encode, train and save with the defaults; `blend` has LightGBM at its side."""
    from fielddep.artifacts.bundle import Bundle
    from fielddep.config.settings import Config
    from fielddep.store.build import build_store
    from fielddep.training.fit import torch_threads, train
    from fielddep.training.metrics import measure
    from fielddep.training.prepare import prepare

    started, cpu = time.perf_counter(), time.process_time()
    split = {"split.method": "column", "split.column": PART}
    name = "blend" if given.model == "blend" else "mdl"
    model = {"model.name": name, "train.threads": given.threads, "train.seed": given.seed}
    config = Config().replace({"data.target": given.target, "data.task": given.task, **split, **model})
    with torch_threads(given.threads):
        store = build_store(str(given.table), config, given.out / "store")
        trained = train(prepare(store, config))
        Bundle.of(trained).save(given.out / "model")
        figures = _figures(started, cpu, given.out / "model")
        test = measure(trained.model.outputs, trained.prepared.target, trained.prepared.parts["test"].chunks())
    return {**figures, "logloss": test.metrics["logloss"], "library": f"torch {metadata.version('torch')}"}


class Codes:
    """The rows of a table: fields as codes of values, the target as the number of its class."""

    def __init__(self, given: argparse.Namespace) -> None:
        import numpy as np
        import polars as pl

        frame = pl.read_parquet(given.table)
        self.part = frame[PART].to_numpy()
        self.classes, target = np.unique(frame[given.target].to_numpy(), return_inverse=True)
        self.target = target.astype(np.int32)
        fields = [name for name in frame.columns if name not in (PART, given.target)]
        self.codes = {name: frame[name].cast(pl.Categorical).to_physical().to_numpy() for name in fields}

    def of(self, part: str, dtype: str) -> tuple[Any, Any]:
        """A frame of codes and the target of a part."""
        import pandas as pd

        rows = self.part == part
        return pd.DataFrame({name: codes[rows].astype(dtype) for name, codes in self.codes.items()}), self.target[rows]


def fit_lightgbm(given: argparse.Namespace) -> dict[str, Any]:
    """LightGBM's defaults."""
    lgb = importlib.import_module("lightgbm")
    started, cpu = time.perf_counter(), time.process_time()
    rows = Codes(given)
    # float32 holds codes below 2^24 exactly; LightGBM would copy whole numbers to floats of 64 bits.
    train, validation = rows.of("train", "float32"), rows.of("validation", "float32")
    model = lgb.LGBMClassifier(n_estimators=given.trees, n_jobs=given.threads, random_state=given.seed, verbosity=-1)
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    model.fit(*train, eval_set=[validation], categorical_feature=list(rows.codes), callbacks=[stop])
    model.booster_.save_model(given.out / "model")
    figures = _figures(started, cpu, given.out / "model")
    return {**figures, "n_trees": model.best_iteration_, **_tested(model, rows, "float32", "lightgbm")}


def fit_catboost(given: argparse.Namespace) -> dict[str, Any]:
    """CatBoost's defaults."""
    catboost = importlib.import_module("catboost")
    started, cpu = time.perf_counter(), time.process_time()
    rows = Codes(given)
    names = list(rows.codes)
    train, validation = (catboost.Pool(*rows.of(part, "int32"), cat_features=names) for part in ("train", "validation"))
    model = catboost.CatBoostClassifier(
        loss_function="Logloss" if len(rows.classes) == 2 else "MultiClass", iterations=given.trees,
        early_stopping_rounds=PATIENCE, use_best_model=True, random_seed=given.seed, thread_count=given.threads,
        verbose=False, allow_writing_files=False,
    )  # fmt: skip
    model.fit(train, eval_set=validation)
    model.save_model(str(given.out / "model"))
    figures = _figures(started, cpu, given.out / "model")
    return {**figures, "n_trees": model.tree_count_, **_tested(model, rows, "int32", "catboost")}


def _figures(started: float, cpu: float, saved: Path) -> dict[str, float]:
    """What the fit took, up to now."""
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    files = [saved] if saved.is_file() else [path for path in saved.rglob("*") if path.is_file()]
    n_bytes = sum(path.stat().st_size for path in files)
    return {"fit_seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2), "model_mb": round(n_bytes / 1e6, 3)}


def _tested(model: Any, rows: Codes, dtype: str, library: str) -> dict[str, Any]:
    import numpy as np

    columns, target = rows.of("test", dtype)
    found = np.full((len(target), len(rows.classes)), SMALLEST)
    found[:, np.asarray(model.classes_).astype(int)] = model.predict_proba(columns)
    own = np.clip(found[np.arange(len(target)), target], SMALLEST, 1)
    return {"logloss": float(-np.log(own).mean()), "library": f"{library} {metadata.version(library)}"}


MODELS = {"fielddep": fit_fielddep, "blend": fit_fielddep, "lightgbm": fit_lightgbm, "catboost": fit_catboost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("table", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--task", default="auto")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model, and the store of fielddep")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trees", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True)
    print(json.dumps(MODELS[given.model](given)))


if __name__ == "__main__":
    main()

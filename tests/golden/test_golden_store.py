"""Stores and runs of every released format keep opening, predicting and measuring what they did.

`store-v1`, `run-v1` and `encode-v1.json` were written by fielddep 0.1 (commit 190553c) from `store-rows.csv`: fields of
every kind, weights, a cross, three shards. Never write them again. What this does not catch: that training gives the
same weights as before.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.artifacts.run import Run
from fielddep.config.settings import Config
from fielddep.encoding.coded import Sizes
from fielddep.encoding.numbers import default_n_bins
from fielddep.store.build import build_store
from fielddep.store.store import Store

HERE = Path(__file__).parent
TABLE = HERE / "store-rows.csv"
SIZES = Sizes(chunk_rows=128, part_rows=64, shard_rows=256, checkpoint_rows=200)
ENCODED = json.loads((HERE / "encode-v1.json").read_text())
EVALUATED = json.loads((HERE / "run-v1.json").read_text())
# Not compared: settings may come (config), measures came after 0.1, the source has a time stamp, and the others change
# when anything else does.
UNCOMPARED = ("config", "files", "measures", "sha256", "sources", "version")


@pytest.fixture(scope="module")
def store() -> Store:
    return Store.open(HERE / "store-v1", check=True)


def test_the_store_opens_and_holds_its_table(store: Store) -> None:
    table = pl.read_csv(TABLE, infer_schema=False)
    assert store.n_rows == len(table) == 600
    rows = store.read(0, store.n_rows)
    again, _ = store.encoder.encode(table, with_target=True)
    for name in ("ids_RF", "numbers_RN", "target_R", "weight_R"):
        np.testing.assert_allclose(getattr(rows, name), getattr(again, name), rtol=1e-6, err_msg=name)
    parts = ("train", "validation", "test")
    assert [parts[part] for part in store.parts(0, store.n_rows)] == table["part"].to_list()


def test_the_store_holds_every_kind_of_field(store: Store) -> None:
    kinds = [field.numeric or field.kind for field in store.encoder.schema.fields]
    assert kinds == ["categorical", "categorical", "categorical", "scale", "quantile", "log2"]
    assert store.layout.names[-1] == "colour x shape"
    assert store.encoder.schema.weight == "weight"
    assert len(list(store.folder.glob("shard-*.ids"))) == 3


def test_the_run_predicts_the_store_and_its_table_as_before(store: Store) -> None:
    expected = pl.read_csv(HERE / "run-v1.csv", schema_overrides={"prediction": pl.String})
    predictor = Predictor(HERE / "run-v1" / "bundle")
    for source in (store, TABLE):
        assert_frame_equal(predictor.predict(source), expected, check_dtypes=False, abs_tol=1e-5, rel_tol=1e-5)


@pytest.mark.parametrize("part", EVALUATED)
def test_the_run_measures_the_store_as_before(store: Store, part: str) -> None:
    found = Predictor(HERE / "run-v1" / "bundle").evaluate(store, part=part)
    assert {name: found[name] for name in EVALUATED[part]} == pytest.approx(EVALUATED[part], abs=1e-5)


def test_the_run_opens() -> None:
    run = Run.open(HERE / "run-v1")
    for part in ("validation", "test"):
        assert run.metrics[part] == pytest.approx(EVALUATED[part], abs=1e-5)
    assert [evaluation.epoch for evaluation in run.history] == [1, 2, 3, 4, 5, 6]
    assert run.config == Bundle.load(HERE / "run-v1" / "bundle").config
    assert run.config.model.d_embed == 4


def test_the_store_can_be_trained_on(store: Store, tmp_path: Path) -> None:
    settings = {"train.max_epochs": 1, "model.d_embed": 2, "model.hidden": [4], "train.threads": 1}
    run = Run.train(store, Config().replace(settings), tmp_path / "run")
    assert run.metrics["test"]["logloss"] < 1


def digests(folder: Path) -> dict[str, str]:
    """Of every file of a store; of JSON and Arrow files by what they hold, as a library may write it otherwise."""
    found = {}
    for path in sorted(path for path in folder.iterdir() if path.suffix != ".measures"):
        content = path.read_bytes()
        if path.suffix == ".arrow":
            content = pl.read_ipc(path).write_json().encode()
        elif path.suffix == ".json":
            content = json.dumps(_kept(json.loads(content)), sort_keys=True).encode()
        found[path.name] = hashlib.sha256(content).hexdigest()
    return found


def _kept(state: dict[str, object]) -> dict[str, object]:
    """What must stay of schema.json and manifest.json: not the reasons for skipping a field, nor the last digits."""

    def plain(value: object, key: str = "") -> object:
        if isinstance(value, float):
            return f"{value:.10g}"
        if isinstance(value, dict):
            return {name: plain(item, name) for name, item in value.items()}
        if key == "arrays" and isinstance(value, list):
            return [plain(item) for item in value if item["name"] != "measures"]
        if isinstance(value, list):
            return [item[0] for item in value] if key in ("left_out", "skipped") else [plain(item) for item in value]
        return value

    return {name: plain(value, name) for name, value in state.items() if name not in UNCOMPARED}


@pytest.mark.parametrize("variant", ENCODED)
def test_encoding_writes_the_same_files(variant: str, tmp_path: Path) -> None:
    """But for what `digests` leaves out: the split is a column, so it does not depend on a draw.

    Since 0.1, targets may change the number of bins and the kind of whole numbers, so both are told here, and there is
    evidence, which is left out.
    """
    n_train = (pl.read_csv(TABLE)["part"] == "train").sum()
    told = {"data.n_bins": default_n_bins(n_train), "data.evidence": "none"}
    config = Config().replace(told | ENCODED[variant]["settings"])
    config = config.replace({"data.kinds.shape": "categorical"})
    stored = build_store(TABLE, config, tmp_path / "store", sizes=SIZES)
    assert digests(stored.folder) == ENCODED[variant]["files"]

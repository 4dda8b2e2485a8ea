"""Training, evaluation and prediction from a store: by the library and by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.predictor import Predictor, default_part
from fielddep.artifacts.run import Run
from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.errors import CheckpointError, StoreError
from fielddep.observer import Observer
from fielddep.store.loader import Loader
from fielddep.store.shards import StorePart
from fielddep.store.store import Store
from fielddep.training import fit as fitting
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import fit, train
from fielddep.training.prepare import prepare
from tests.conftest import quick_config, small_frame
from tests.helpers import raises, states
from tests.stores import numbered_store, write_store

FRAME = small_frame(600)
CONFIG = quick_config(train__threads=1, train__max_epochs=3)
TEST = ["--part", "test"]
WORDS = ["--set", "train.max_epochs=3", "--set", "model.d_embed=4", "--set", "model.hidden=[8]", "--quiet"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("stored") / "store", FRAME, quick_config())


@pytest.fixture(scope="module")
def run(store: Store) -> Path:
    folder = store.folder.parent / "run"
    assert main(["fit", str(store.folder), "--out", str(folder), *WORDS]) == 0
    return folder


def parts_of(store: Store) -> np.ndarray:
    return store.parts(0, store.n_rows)


# --- the loss under a buffered shuffle ------------------------------------------------------------------------


def sorted_table(n_rows: int = 6000) -> pl.DataFrame:
    """Rows sorted by a field that says much of the target: without shuffling, neighbours are all alike."""
    rng = np.random.default_rng(0)
    group, left, right = rng.integers(0, 40, n_rows), rng.integers(0, 12, n_rows), rng.integers(0, 12, n_rows)
    effect, pairs = rng.normal(size=40) * 2, rng.normal(size=(12, 1)) + rng.normal(size=12)
    chance = 1 / (1 + np.exp(-(effect[group] + pairs[left, right])))
    return pl.DataFrame(
        {"group": group, "left": left, "right": right, "y": (rng.random(n_rows) < chance).astype(int)}
    ).sort("group")


SORTED = {
    "data.target": "y",
    "data.kinds": {"group": "categorical", "left": "categorical", "right": "categorical"},
    "data.crosses": "none",
    "data.evidence": "none",
    "model.d_embed": 6,
    "model.hidden": [],
    "train.lr": 0.05,
    "train.embedding_l2": 0.05,
    "train.first_order_l2": 0.01,
    "train.max_epochs": 2,
    "train.eval_every": 4,
    "train.batch_size": 64,
    "train.threads": 1,
}


def losses(store: Store, monkeypatch: pytest.MonkeyPatch, buffer_rows: int | None, n_seeds: int = 5) -> np.ndarray:
    """Lowest validation loss for every seed; None does not shuffle at all."""

    def loader(rows: StorePart, *, batch_size: int, seed: int | None = None):
        if seed is None or buffer_rows is None:
            return Loader(rows, batch_size=batch_size)
        return Loader(rows, batch_size=batch_size, seed=seed, buffer_rows=buffer_rows, chunk_rows=2)

    monkeypatch.setattr(fitting, "Loader", loader)
    found = []
    for seed in range(n_seeds):
        trained = train(prepare(store, Config().replace({**SORTED, "train.seed": seed})))
        found.append(trained.validation["loss"])
    return np.array(found)


def test_a_buffered_shuffle_learns_as_well_as_a_full_one(tmp_path, monkeypatch):
    """On rows sorted by a field, in windows of a tenth of the rows; what no shuffling would cost is shown beside."""
    store = write_store(tmp_path / "store", sorted_table(), Config().replace(SORTED))
    full, buffered = losses(store, monkeypatch, 6000), losses(store, monkeypatch, 600)
    unshuffled = losses(store, monkeypatch, None, n_seeds=2)
    noise = np.sqrt(full.var(ddof=1) / len(full) + buffered.var(ddof=1) / len(buffered))
    assert noise < 0.004
    assert abs(buffered.mean() - full.mean()) < 3 * noise
    assert unshuffled.mean() - full.mean() > 0.02


# --- runs -----------------------------------------------------------------------------------------------------


def test_fit_from_a_store(store, run, capsys):
    found = Run.open(run)
    assert found.config.data == store.config.data
    assert found.config.train.max_epochs == 3
    assert set(found.metrics) == {"validation", "validation_base_rate", "test", "test_base_rate"}
    assert found.metrics["test"]["auc"] > found.metrics["test_base_rate"]["auc"]
    record = json.loads((run / "environment.json").read_text())["source"]
    assert (record["name"], record["rows"]) == ("store", 600)
    assert main(["fit", str(store.folder), "--out", str(run), *WORDS, "--force"]) == 0
    out = capsys.readouterr().out
    assert states(out, f"{Run.open(run).history[-1].rows_per_s:,.0f} rows/s", run)


def test_what_fit_says_of_a_store(store, tmp_path, capsys):
    assert main(["fit", str(store.folder), "--out", str(tmp_path / "run"), *WORDS[:-1]]) == 0
    said = capsys.readouterr().err
    assert states(said, "600 rows", "3 fields", "480 train", "60 validation", "60 test", "good", "binary", "2 classes")


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["--target", "size"], "data.target"),
        (["--task", "multiclass"], "data.task"),
        (["--set", "split.test=0.3"], "split.test"),
        (["--set", "data.min_count=5"], "data.min_count"),
    ],
)
def test_settings_that_contradict_the_store(store, tmp_path, capsys, words, setting):
    assert main(["fit", str(store.folder), "--out", str(tmp_path / "run"), *words]) == 2
    assert states(capsys.readouterr().err, "error", "encoded", setting)
    assert not (tmp_path / "run").exists()


def test_a_default_that_is_said_aloud_is_no_default(tmp_path, capsys):
    seeded = write_store(tmp_path / "store", FRAME, quick_config(split__seed=3))
    words = ["fit", str(seeded.folder), "--out", str(tmp_path / "run"), *WORDS]
    assert main([*words, "--set", "split.seed=0"]) == 2
    assert states(capsys.readouterr().err, "split.seed", 3, 0)
    file = tmp_path / "config.toml"
    file.write_text("[split]\nseed = 0\n[train]\nmax_epochs = 2\n")
    assert main([*words, "--config", str(file)]) == 2
    file.write_text("[split]\nseed = 3\n[train]\nmax_epochs = 2\n")
    assert main([*words, "--config", str(file), "--target", "good"]) == 0
    assert Run.open(tmp_path / "run").config.split.seed == 3
    assert Run.open(tmp_path / "run").config.train.max_epochs == 3


def test_resuming_wants_the_same_store(store, tmp_path):
    class Stop(Observer):
        def on_evaluation(self, evaluation: Evaluation) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run.train(store, CONFIG, tmp_path / "run", observer=Stop())
    changed = FRAME.with_columns(good=pl.when(pl.int_range(600) == 5).then(1 - pl.col("good")).otherwise("good"))
    other = write_store(tmp_path / "other", changed, quick_config())
    with raises(CheckpointError, "order"):
        Run.train(other, CONFIG, tmp_path / "run", resume=True)
    assert Run.train(store, CONFIG, tmp_path / "run", resume=True).metrics


# --- evaluate and predict -------------------------------------------------------------------------------------


def evaluated(capsys, *words: str) -> dict[str, float]:
    assert main(["evaluate", *words, "--json"]) == 0
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


def test_evaluate_a_store_by_parts(store, run, tmp_path, capsys):
    table = tmp_path / "table.parquet"
    FRAME.write_parquet(table)
    everything = evaluated(capsys, str(run), str(store.folder), "--part", "all")
    assert everything == pytest.approx(evaluated(capsys, str(run), str(table)), abs=1e-6)
    for mark, part in enumerate(("train", "validation", "test")):
        FRAME.filter(pl.Series(parts_of(store) == mark)).write_parquet(table)
        expected, found = (
            evaluated(capsys, str(run), *rows) for rows in ([str(table)], [str(store.folder), "--part", part])
        )
        assert found.pop("auc") == pytest.approx(
            expected.pop("auc"), abs=1e-3
        )  # in other batches equal rows may differ
        assert found == pytest.approx(expected, abs=1e-6)


def test_evaluate_takes_rows_that_no_training_has_seen(store, run, tmp_path, capsys):
    assert evaluated(capsys, str(run), str(store.folder)) == evaluated(capsys, str(run), str(store.folder), *TEST)
    untested = write_store(tmp_path / "untested", FRAME, CONFIG.replace({"split.test": 0.0}))
    unsplit = numbered_store(tmp_path / "unsplit", np.zeros(60, dtype=np.uint8))
    assert [default_part(rows) for rows in (store, untested, unsplit, FRAME)] == ["test", "validation", "all", "all"]
    table = tmp_path / "table.csv"
    FRAME.write_csv(table)
    for source, words, rows in (
        (store.folder, [], "test"),
        (store.folder, ["--part", "all"], "all"),
        (store.folder, ["--part", "train"], "train"),
        (table, [], "all"),
    ):
        assert main(["evaluate", str(run), str(source), *words]) == 0
        assert f"{source}, {rows} rows, target good" in capsys.readouterr().out.replace("\n", "")
    predictor = Predictor(run / "bundle")
    assert predictor.evaluate(store) == predictor.evaluate(str(store.folder), part="test")
    assert predictor.evaluate(store, part="all") != predictor.evaluate(store)


def test_parts_that_there_are_not(store, run, tmp_path, capsys):
    assert main(["evaluate", str(run), str(store.folder), "--part", "holdout"]) == 2
    assert states(capsys.readouterr().err, "train", "validation", "test", "all", "'holdout'")
    table = tmp_path / "table.csv"
    FRAME.write_csv(table)
    assert main(["evaluate", str(run), str(table), "--part", "test"]) == 2
    assert states(capsys.readouterr().err, "store", "test rows")
    untested = write_store(tmp_path / "store", FRAME, quick_config(split__test=0.0))
    assert main(["evaluate", str(run), str(untested.folder), "--part", "test"]) == 2
    assert states(capsys.readouterr().err, "no test rows")


def test_predict_a_store_in_the_order_of_its_source(store, run, tmp_path, capsys):
    table = tmp_path / "table.csv"
    FRAME.write_csv(table)
    outputs = []
    for source in (store.folder, table):
        out = tmp_path / f"{source.name}.parquet"
        assert main(["predict", str(run), str(source), "--out", str(out)]) == 0
        outputs.append(pl.read_parquet(out))
    assert outputs[0]["prediction"].equals(outputs[1]["prediction"])
    np.testing.assert_allclose(outputs[0]["probability_1"], outputs[1]["probability_1"], atol=1e-6)
    assert states(capsys.readouterr().err, "600 predictions")
    assert main(["predict", str(run), str(store.folder), "--keep", "colour"]) == 2
    assert states(capsys.readouterr().err, "--keep", "store")


def test_a_store_with_other_ids_is_refused(run, tmp_path, capsys):
    other = write_store(tmp_path / "other", small_frame(300, seed=4).filter(pl.col("colour") != "red"), quick_config())
    for words in (["evaluate"], ["predict", "--out", str(tmp_path / "out.csv")]):
        assert main([words[0], str(run), str(other.folder), *words[1:]]) == 2
        assert states(capsys.readouterr().err, other.folder, "table")


def test_commands_that_want_a_table_say_so(store, run, capsys):
    assert main(["describe", str(store.folder)]) == 2
    said = capsys.readouterr().err
    assert states(said, "describe", "store", "give the table")


def test_a_store_that_lost_a_file(store, run, tmp_path, capsys):
    copy = write_store(tmp_path / "store", FRAME, quick_config())
    (copy.folder / "shard-00001.ids").unlink()
    for words in (["fit", str(copy.folder), "--out", str(tmp_path / "run")], ["evaluate", str(run), str(copy.folder)]):
        assert main(words) == 2
        assert states(capsys.readouterr().err, "shard-00001.ids", "missing")


def test_an_unfinished_store_is_named(run, tmp_path, capsys):
    (tmp_path / "store" / "unfinished").mkdir(parents=True)
    (tmp_path / "store" / "unfinished" / "request.json").write_text("{}")
    source = str(tmp_path / "store")
    for words in (["fit", source, "--out", str(tmp_path / "run")], ["evaluate", str(run), source]):
        assert main(words) == 2
        assert states(capsys.readouterr().err, source, "manifest.json", "--resume")


def test_batch_norm_takes_its_statistics_from_the_store(store):
    trained = fit(store, CONFIG.replace({"model.batch_norm": "all"}))
    assert trained.metrics["validation"] == pytest.approx(trained.validation, abs=1e-6)


def test_training_stops_its_reading_thread(store):
    import threading

    class Fail(Observer):
        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            if step == 2:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        train(prepare(store, CONFIG), observer=Fail())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fielddep-prefetch")]


def test_library_takes_a_store_by_path_or_opened(store, run):
    predictor = Predictor(run / "bundle")
    assert predictor.predict(store).equals(predictor.predict(str(store.folder)))
    assert predictor.evaluate(store.folder) == predictor.evaluate(store)
    sizes = [len(frame) for frame, _ in predictor.stream(store)]
    assert sizes == [32] * 18 + [24]


def test_a_damaged_store_is_refused_before_the_training(tmp_path, caplog):
    caplog.set_level("INFO", logger="fielddep.artifacts.run")
    stored = write_store(tmp_path / "store", FRAME, CONFIG)
    Run.train(stored, CONFIG, tmp_path / "whole")
    assert states(caplog.text, stored.folder, "checked")
    shard = stored.folder / "shard-00000.ids"
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    assert Store.open(stored.folder).n_rows == len(FRAME)
    with raises(StoreError, shard, "altered"):
        Run.train(stored, CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    Run.train(stored, CONFIG, tmp_path / "whole", resume=True)  # finished: nothing is read

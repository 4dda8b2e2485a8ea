"""Training, evaluation and prediction from a store: by the library and by the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep import fitting
from fielddep.cli import main
from fielddep.config import Config
from fielddep.data.store.loader import StoreLoader, StorePart, loader_for
from fielddep.data.store.store import Store
from fielddep.errors import CheckpointError, StoreError
from fielddep.fitting import prepare_store, train_model
from fielddep.predictor import Predictor, evaluated_part
from fielddep.run import Run, train_run
from fielddep.training.callbacks import Callback
from fielddep.training.history import Evaluation, History
from tests.conftest import quick_config, small_frame
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


# --- the loss under a windowed shuffle ------------------------------------------------------------------------


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


def losses(store: Store, monkeypatch: pytest.MonkeyPatch, window_rows: int | None, n_seeds: int = 5) -> np.ndarray:
    """Lowest validation loss for every seed; None does not shuffle at all."""

    def loader(rows: StorePart, *, batch_size: int, seed: int | None = None):
        if seed is None or window_rows is None:
            return loader_for(rows, batch_size=batch_size)
        return StoreLoader(rows, batch_size=batch_size, seed=seed, window_rows=window_rows, piece_rows=2)

    monkeypatch.setattr(fitting, "loader_for", loader)
    found = []
    for seed in range(n_seeds):
        history = History()
        train_model(prepare_store(store, Config().replace({**SORTED, "train.seed": seed})), history=history)
        assert history.best is not None
        found.append(history.best.validation["loss"])
    return np.array(found)


def test_a_windowed_shuffle_learns_as_well_as_a_full_one(tmp_path, monkeypatch):
    """On rows sorted by a field, in windows of a tenth of the rows; what no shuffling would cost is shown beside."""
    store = write_store(tmp_path / "store", sorted_table(), Config().replace(SORTED))
    full, windowed = losses(store, monkeypatch, 6000), losses(store, monkeypatch, 600)
    unshuffled = losses(store, monkeypatch, None, n_seeds=2)
    noise = np.sqrt(full.var(ddof=1) / len(full) + windowed.var(ddof=1) / len(windowed))
    assert noise < 0.004
    assert abs(windowed.mean() - full.mean()) < 3 * noise
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
    assert "rows/s, saved in" in out
    assert f"trained at {Run.open(run).history[-1].rows_per_s:,.0f} rows/s" in out


def test_what_fit_says_of_a_store(store, tmp_path, capsys):
    assert main(["fit", str(store.folder), "--out", str(tmp_path / "run"), *WORDS[:-1]]) == 0
    said = capsys.readouterr().err
    assert "600 rows, 3 fields" in said
    assert "rows: 480 train, 60 validation, 60 test" in said
    assert "target good: binary, 2 classes" in said


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
    assert f"was encoded with {setting} = " in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_default_that_is_said_aloud_is_no_default(tmp_path, capsys):
    seeded = write_store(tmp_path / "store", FRAME, quick_config(split__seed=3))
    words = ["fit", str(seeded.folder), "--out", str(tmp_path / "run"), *WORDS]
    assert main([*words, "--set", "split.seed=0"]) == 2
    assert "was encoded with split.seed = 3, which is settled; given 0" in capsys.readouterr().err
    file = tmp_path / "config.toml"
    file.write_text("[split]\nseed = 0\n[train]\nmax_epochs = 2\n")
    assert main([*words, "--config", str(file)]) == 2
    file.write_text("[split]\nseed = 3\n[train]\nmax_epochs = 2\n")
    assert main([*words, "--config", str(file), "--target", "good"]) == 0
    assert Run.open(tmp_path / "run").config.split.seed == 3
    assert Run.open(tmp_path / "run").config.train.max_epochs == 3


def test_resuming_wants_the_same_store(store, tmp_path):
    class Stop(Callback):
        def on_evaluation(self, evaluation: Evaluation) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(store, CONFIG, tmp_path / "run", callbacks=[Stop()])
    changed = FRAME.with_columns(good=pl.when(pl.int_range(600) == 5).then(1 - pl.col("good")).otherwise("good"))
    other = write_store(tmp_path / "other", changed, quick_config())
    with pytest.raises(CheckpointError, match=r"must stay the same; its values or their order \(by"):
        train_run(other, CONFIG, tmp_path / "run", resume=True)
    assert train_run(store, CONFIG, tmp_path / "run", resume=True).metrics


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
        expected = evaluated(capsys, str(run), str(table))
        assert evaluated(capsys, str(run), str(store.folder), "--part", part) == pytest.approx(expected, abs=1e-6)


def test_evaluate_takes_rows_that_no_training_has_seen(store, run, tmp_path, capsys):
    assert evaluated(capsys, str(run), str(store.folder)) == evaluated(capsys, str(run), str(store.folder), *TEST)
    untested = write_store(tmp_path / "untested", FRAME, CONFIG.replace({"split.test": 0.0}))
    unsplit = numbered_store(tmp_path / "unsplit", np.zeros(60, dtype=np.uint8))
    assert [evaluated_part(rows) for rows in (store, untested, unsplit, FRAME)] == ["test", "validation", "all", "all"]
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
    assert "a part is one of train, validation, test or all; given 'holdout'" in capsys.readouterr().err
    table = tmp_path / "table.csv"
    FRAME.write_csv(table)
    assert main(["evaluate", str(run), str(table), "--part", "test"]) == 2
    assert "only a store knows which rows are its test rows" in capsys.readouterr().err
    untested = write_store(tmp_path / "store", FRAME, quick_config(split__test=0.0))
    assert main(["evaluate", str(run), str(untested.folder), "--part", "test"]) == 2
    assert "has no test rows" in capsys.readouterr().err


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
    assert "wrote 600 predictions" in capsys.readouterr().err
    assert main(["predict", str(run), str(store.folder), "--keep", "colour"]) == 2
    assert "is a store, which holds none" in capsys.readouterr().err


def test_a_run_of_another_table_evaluates_a_store(run, tmp_path, capsys):
    """The ids of the two differ; where they tell the values, they are translated, where not, it is refused."""
    frame = small_frame(300, seed=4).filter(pl.col("colour") != "red")
    other = write_store(tmp_path / "scaled", frame, quick_config(data__exclude=["size"]))
    table = tmp_path / "table.parquet"
    frame.write_parquet(table)
    model = tmp_path / "run"
    words = ["--target", "good", "--set", 'data.exclude=["size"]']
    FRAME.write_parquet(tmp_path / "train.parquet")
    assert main(["fit", str(tmp_path / "train.parquet"), "--out", str(model), *words, *WORDS]) == 0
    capsys.readouterr()
    expected = evaluated(capsys, str(model), str(table))
    assert evaluated(capsys, str(model), str(other.folder), "--part", "all") == pytest.approx(expected, abs=1e-6)
    binned = write_store(tmp_path / "binned", frame, quick_config())
    assert main(["evaluate", str(run), str(binned.folder)]) == 2
    assert "field 'size' of the store holds bins of numbers" in capsys.readouterr().err


def test_commands_that_want_a_table_say_so(store, run, capsys):
    assert main(["describe", str(store.folder)]) == 2
    said = capsys.readouterr().err
    assert "describe looks at the values of a table" in said
    assert "give the table that it was made from" in said


def test_a_store_that_lost_a_file(store, run, tmp_path, capsys):
    copy = write_store(tmp_path / "store", FRAME, quick_config())
    (copy.folder / "shard-00001.ids").unlink()
    for words in (["fit", str(copy.folder), "--out", str(tmp_path / "run")], ["evaluate", str(run), str(copy.folder)]):
        assert main(words) == 2
        assert "shard-00001.ids is missing" in capsys.readouterr().err


def test_an_unfinished_store_is_named(run, tmp_path, capsys):
    (tmp_path / "store" / "unfinished").mkdir(parents=True)
    (tmp_path / "store" / "unfinished" / "request.json").write_text("{}")
    source = str(tmp_path / "store")
    for words in (["fit", source, "--out", str(tmp_path / "run")], ["evaluate", str(run), source]):
        assert main(words) == 2
        assert (
            "is no whole store: it lacks manifest.json; finish it with encode ... --resume" in capsys.readouterr().err
        )


def test_batch_norm_takes_its_statistics_from_the_store(store):
    history = History()
    config = CONFIG.replace({"model.batch_norm": "all"})
    model = train_model(prepare_store(store, config), history=history)
    again = fitting.measure(prepare_store(store, config), model)
    assert history.best is not None
    assert again["validation"] == pytest.approx(history.best.validation, abs=1e-6)


def test_training_stops_its_reading_thread(store):
    import threading

    class Fail(Callback):
        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            if step == 2:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        train_model(prepare_store(store, CONFIG), callbacks=[Fail()])
    assert not [thread for thread in threading.enumerate() if thread.name == "fielddep-prefetch"]


def test_library_takes_a_store_by_path_or_opened(store, run):
    predictor = Predictor(run / "bundle")
    assert predictor.predict(store).equals(predictor.predict(str(store.folder)))
    assert predictor.evaluate(store.folder) == predictor.evaluate(store)
    sizes = [len(frame) for frame, _ in predictor.stream(store)]
    assert sizes == [32] * 18 + [24]


def test_windowed_loader_is_what_fit_uses(store, monkeypatch):
    seen = []
    monkeypatch.setattr(fitting, "loader_for", partial(_spy, seen))
    train_model(prepare_store(store, CONFIG))
    assert [type(loader) for loader in seen] == [StoreLoader, StoreLoader]
    assert (seen[0].seed, seen[1].seed) == (0, None)
    assert torch.get_num_threads() == 1


def _spy(seen, rows, **settings):
    seen.append(loader_for(rows, **settings))
    return seen[-1]


def test_a_damaged_store_is_refused_before_the_training(tmp_path, caplog):
    caplog.set_level("INFO", logger="fielddep.run")
    stored = write_store(tmp_path / "store", FRAME, CONFIG)
    train_run(stored, CONFIG, tmp_path / "whole")
    assert f"the files of store {stored.folder} are whole (checked in" in caplog.text
    shard = stored.folder / "shard-00000.ids"
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    assert Store.open(stored.folder).n_rows == len(FRAME)
    with pytest.raises(StoreError, match=f"{shard} was altered since it was written"):
        train_run(stored, CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train_run(stored, CONFIG, tmp_path / "whole", resume=True)  # finished: nothing is read

"""Lists, shared values and text on their whole way: table, store, training, bundle, predictions, explanations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.config.settings import Config
from fielddep.observer import Observer
from fielddep.store.build import build_store
from fielddep.store.store import Store
from fielddep.training.fit import Trained, fit
from tests.streamed import small_chunks

__all__ = ["small_chunks"]

WORDS = ("good", "bad", "the", "a", "food", "service", "was", "and", "place", "price", "again", "never")


def shop(n_rows: int = 900, seed: int = 0) -> pl.DataFrame:
    """Rows whose target depends on one tag, one item of the history and one word."""
    rng = np.random.default_rng(seed)
    tags = [sorted(rng.choice(list("abcdefgh"), rng.integers(0, 4), replace=False)) for _ in range(n_rows)]
    history = [rng.integers(0, 12, rng.integers(0, 5)).tolist() for _ in range(n_rows)]
    words = [" ".join(rng.choice(WORDS, rng.integers(4, 9))).capitalize() + "!" for _ in range(n_rows)]
    score = [
        2.5 * ("c" in t) - 2.5 * (3 in h) + 1.5 * ("never" in w) - 0.5
        for t, h, w in zip(tags, history, words, strict=True)
    ]
    bought = rng.random(n_rows) < 1 / (1 + np.exp(-np.array(score)))
    return pl.DataFrame(
        {
            "tags": ["|".join(t) for t in tags],
            "item": rng.integers(0, 12, n_rows),
            "history": pl.Series([h or None for h in history], dtype=pl.List(pl.Int64)),
            "comment": words,
            "user": [f"u{u}" for u in rng.integers(0, 30, n_rows)],
            "bought": bought.astype(int),
        }
    )


SETTINGS = {
    "data.target": "bought",
    "data.crosses": "none",
    "data.kinds": {"item": "categorical"},
    "data.shares": {"history": "item"},
    "model.d_embed": 4,
    "model.hidden": [8],
    "train.max_epochs": 2,
    "train.eval_every": 1,
    "train.batch_size": 64,
    "train.threads": 1,
}
CONFIG = Config().replace(SETTINGS)


@pytest.fixture(scope="module")
def trained() -> Trained:
    return fit(shop(3000), CONFIG.replace({"train.max_epochs": 12, "train.eval_every": 2, "model.d_embed": 8}))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def saved(source: object, folder: Path) -> dict[str, bytes]:
    Bundle.of(fit(source, CONFIG)).save(folder)  # type: ignore[arg-type]  # tables of every kind
    return content(folder)


def test_kinds_are_found(trained: Trained) -> None:
    encoder = trained.prepared.encoder
    assert [(field.name, field.kind, field.separator) for field in encoder.schema.fields] == [
        ("tags", "list", "|"),
        ("item", "categorical", None),
        ("history", "list", None),
        ("comment", "text", None),
        ("user", "categorical", None),
    ]
    assert encoder.layout.lists == (0, 2, 3) and encoder.layout.shares == ((2, 1),)


@pytest.mark.usefixtures("small_chunks")
def test_a_table_and_its_store_give_the_same_bundle(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    shop().write_parquet(path)
    store = build_store(path, CONFIG, tmp_path / "store")
    memory = build_store(path, CONFIG)
    found, expected = store.read(5, 700), memory.read(5, 700)
    for f in store.layout.lists:
        assert found.lists_R(f).to_lists() == expected.lists_R(f).to_lists()
    assert memory.encoder.digest == store.encoder.digest
    bundle = saved(store, tmp_path / "from-store")
    assert saved(memory, tmp_path / "from-memory") == bundle
    assert saved(str(path), tmp_path / "from-file") == bundle
    assert saved(shop(), tmp_path / "from-frame") == bundle
    Store.open(tmp_path / "store", check=True).verify()


class _Interrupt(Observer):
    """Ends an encoding after some chunks."""

    def __init__(self, n_chunks: int) -> None:
        self.n_left = n_chunks

    def on_stage(self, stage: str, n_rows: int, share: float | None) -> None:
        self.n_left -= stage == "encode"
        if not self.n_left:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("n_chunks", [1, 6])
def test_a_resumed_encoding_has_the_same_bytes(tmp_path: Path, n_chunks: int) -> None:
    path = tmp_path / "table.parquet"
    shop(1800).write_parquet(path)
    build_store(path, CONFIG, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        build_store(path, CONFIG, tmp_path / "resumed", observer=_Interrupt(n_chunks))
    build_store(path, CONFIG, tmp_path / "resumed", resume=True)
    whole, resumed = content(tmp_path / "whole"), content(tmp_path / "resumed")
    assert len([name for name in whole if name.endswith(".list0-ends")]) > 2
    assert resumed == whole


def test_planted_values_are_learned(trained: Trained) -> None:
    assert trained.metrics["test"]["auc"] > 0.72


def test_a_saved_model_predicts_the_same_bits_row_by_row_and_in_any_form(trained: Trained, tmp_path: Path) -> None:
    Bundle.of(trained).save(tmp_path / "bundle")
    before, after = Predictor(Bundle.of(trained)), Predictor(tmp_path / "bundle")
    table = shop(200, seed=1)
    expected = before.predict(table)
    assert after.predict(table).equals(expected)
    assert after.predict(table.to_pandas()).equals(expected)
    assert after.predict(table.to_arrow()).equals(expected)
    typed = table.with_columns(pl.col("tags").str.split("|"))
    assert after.predict(typed).equals(expected)
    rows = [after.predict_row(row) for row in table.head(20).iter_rows(named=True)]
    few = after.predict(table.head(5))
    for row, other in zip(rows, expected.iter_rows(named=True), strict=False):
        assert row["prediction"] == other["prediction"]
        assert row["probability_1"] == pytest.approx(other["probability_1"], abs=1e-6)
    assert few["probability_1"].to_list() == pytest.approx(expected["probability_1"].to_list()[:5], abs=1e-6)


def test_a_row_takes_the_shortcut_with_lists_and_with_text(trained: Trained) -> None:
    encoder = trained.prepared.encoder
    row = {"tags": "a|c|zz", "item": 3, "history": [3, 4, 3], "comment": "Never AGAIN, really", "user": "u1"}
    fast = encoder.encode_row(row)
    assert fast is not None
    slow = encoder.encode(pl.DataFrame({name: [value] for name, value in row.items()}))[0]
    for f in encoder.layout.lists:
        assert fast.lists_R(f).to_lists() == slow.lists_R(f).to_lists()
    assert fast.ids_RF.tolist() == slow.ids_RF.tolist()
    empty = encoder.encode_row({**row, "tags": [], "history": None, "comment": "—"})
    assert empty is None  # not ASCII
    empty = encoder.encode_row({**row, "tags": [], "history": None, "comment": "-"})
    assert empty is not None and [empty.lists_R(f).values.tolist() for f in (0, 2, 3)] == [[0], [0], [1]]


@pytest.mark.usefixtures("small_chunks")
def test_a_killed_training_on_a_store_resumes(tmp_path: Path) -> None:
    class Stop(Observer):
        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            if step == 15:
                raise KeyboardInterrupt

    path = tmp_path / "table.parquet"
    shop().write_parquet(path)
    store = build_store(path, CONFIG, tmp_path / "store")
    Bundle.of(fit(store, CONFIG)).save(tmp_path / "whole")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(KeyboardInterrupt):
        fit(store, CONFIG, checkpoints=tmp_path / "checkpoints", observer=Stop())
    Bundle.of(fit(store, CONFIG, checkpoints=tmp_path / "checkpoints", resume=True)).save(tmp_path / "resumed")
    assert content(tmp_path / "resumed") == content(tmp_path / "whole")

"""Lists, shared values and text on their whole way: table, store, training, bundle, predictions, explanations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.cli import main
from fielddep.config import MODEL_CONFIGS
from fielddep.config.settings import Config
from fielddep.explain.hiding import hide_fields, permute_field
from fielddep.explain.neighbours import nearest_values
from fielddep.explain.overview import overview_table
from fielddep.observer import Observer
from fielddep.report.data import data_facts
from fielddep.sklearn_api.estimators import MDLClassifier
from fielddep.store.build import build_store
from fielddep.store.store import Store
from fielddep.training.fit import Trained, fit
from fielddep.training.prepare import prepare
from fielddep.training.tree_rows import TreeColumns
from fielddep.training.trees import is_installed
from tests.helpers import states
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
    settings = {"data.evidence": "none", "train.max_epochs": 12, "train.eval_every": 2, "model.d_embed": 8}
    return fit(shop(3000), CONFIG.replace(settings))


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


# --- explanations -----------------------------------------------------------------------------------------------


def test_explain_names_the_value_that_spoke(trained: Trained) -> None:
    bundle = Bundle.of(trained)
    cells = {"tags": "a|c|b", "item": 1, "history": [5, 3, 5], "comment": "the place was never good", "user": "u1"}
    rows = bundle.encoder.encode(pl.DataFrame({name: [value, None] for name, value in cells.items()}))[0]
    effects = hide_fields(bundle, rows)
    tags, history, comment = (effects.spoken[name] for name in ("tags", "history", "comment"))
    assert tags[0] is not None and tags[0].value == "c" and tags[0].effect > 0.02
    assert history[0] is not None and history[0].value == "3" and history[0].effect < -0.02
    assert comment[0] is not None and comment[0].value == "never" and comment[0].effect > 0.02
    assert tags[1] is history[1] is None
    frame = effects.to_frame().filter(pl.col("row") == 0)
    assert dict(frame.select("hidden", "spoke").iter_rows()) == {
        "tags": "c",
        "item": None,
        "history": "3",
        "comment": "never",
        "user": None,
    }
    assert frame["value"].to_list()[:3] == ["a, c, b", "1", "5, 3, 5"]


def test_hiding_a_list_is_an_empty_cell_and_hiding_a_value_an_unknown_one(trained: Trained) -> None:
    bundle = Bundle.of(trained)
    table = shop(40, seed=2)
    rows = bundle.encoder.encode(table)[0]
    effects = hide_fields(bundle, rows)
    for name, position in (("tags", 0), ("history", 2), ("comment", 3)):
        empty = table.with_columns(pl.lit(None, dtype=table[name].dtype).alias(name))
        expected = Predictor(bundle).predict(empty)["probability_1"]
        assert effects.without_RF[:, position].tolist() == pytest.approx(expected.to_list(), abs=1e-6)
    other = table.with_columns(pl.col("tags").str.replace("c", "unknown"))
    change = Predictor(bundle).predict(table)["probability_1"] - Predictor(bundle).predict(other)["probability_1"]
    named = [at for at, spoken in enumerate(effects.spoken["tags"]) if spoken is not None and spoken.value == "c"]
    assert named
    for at in named:
        spoken = effects.spoken["tags"][at]
        assert spoken is not None and spoken.effect == pytest.approx(change[at], abs=1e-6)


def test_importance_shuffles_complete_lists(trained: Trained) -> None:
    bundle = Bundle.of(trained)
    rows = bundle.encoder.encode(shop(60, seed=3))[0]
    order = np.random.default_rng(0).permutation(60)
    moved = permute_field(bundle.encoder, rows, 2, order)
    lists = rows.lists_R(2).to_lists()
    assert moved.lists_R(2).to_lists() == [lists[at] for at in order]
    assert moved.lists_R(0).to_lists() == rows.lists_R(0).to_lists()
    table = shop(400, seed=4)
    overview = overview_table(bundle, bundle.encoder.encode(table, with_target=True)[0], n_groups=2, n_repeats=1)
    assert overview.importance is not None
    assert set(overview.importance.ranked()[:3]) >= {"tags", "history"}


def test_a_report_and_nearest_values_know_lists(trained: Trained) -> None:
    bundle = Bundle.of(trained)
    facts = data_facts(bundle.encoder, bundle.encoder.encode(shop(100, seed=5))[0], rows="rows")
    by_name = {fact.name: fact for fact in facts.fields}
    assert by_name["tags"].n_values == 8 and by_name["tags"].missing == pytest.approx(0.25, abs=0.05)
    assert by_name["tags"].unknown == by_name["history"].unknown == 0.0
    assert "a" not in nearest_values(bundle, "tags", "a").values
    assert nearest_values(bundle, "history", 3).values == nearest_values(bundle, "item", 3).values


@pytest.mark.parametrize("name", ["lightgbm", "catboost"])
def test_trees_get_counts_and_frequent_values(name: str) -> None:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed")
    config = Config().replace({**{key: v for key, v in SETTINGS.items() if "model" not in key}, "data.shares": {}})
    prepared = prepare(shop(1500), config)
    trees = replace(prepared, config=replace(prepared.config, model=MODEL_CONFIGS[name]()))
    assert fit(trees).metrics["test"]["auc"] > 0.65
    columns = TreeColumns.of(prepared.encoder)
    rows = prepared.encoder.encode(shop(3, seed=1))[0]
    found = columns.columns(rows)
    lengths = [len(cell.split("|")) if cell else 0 for cell in shop(3, seed=1)["tags"]]
    assert found[len(columns.codes)].tolist() == lengths
    assert len(found) == 5 + 8 + 12 + len(WORDS)
    assert np.sum(found[5:13], axis=0).tolist() == lengths


def test_lists_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, run = tmp_path / "table.csv", tmp_path / "run"
    frame = shop(600).drop("history").with_columns(pl.col("tags").str.replace_all("|", " + ", literal=True))
    frame.write_csv(table)
    asked = ["--target", "bought", "--set", 'data.lists.tags="+"', "--set", "data.kinds.comment=text"]
    assert main(["describe", str(table), *asked]) == 0
    assert states(capsys.readouterr().out, "list (+)", "text")
    quick = ["--set", "train.max_epochs=1", "--no-report", "--quiet"]
    assert main(["fit", str(table), *asked, "--out", str(run), *quick]) == 0
    assert main(["encode", str(table), *asked, "--out", str(tmp_path / "store")]) == 0
    assert main(["evaluate", str(run), str(tmp_path / "store")]) == 0
    capsys.readouterr()
    assert main(["explain", str(run), str(table), "--rows", "0", "--sample", "0", "--out", str(tmp_path / "out")]) == 0
    assert main(["predict", str(run), str(table), "--out", str(tmp_path / "predictions.csv")]) == 0
    effects = pl.read_csv(tmp_path / "out" / "effects.csv")
    first = frame["tags"][0].split(" + ")
    assert effects.filter(pl.col("hidden") == "tags")["spoke"].item() in first
    assert effects.filter(pl.col("hidden") == "tags")["value"].item() == ", ".join(first)


def test_estimators_take_lists() -> None:
    table = shop(300).to_pandas()
    target = table.pop("bought")
    other = shop(60, seed=1).with_columns(pl.col("history").cast(pl.List(pl.String))).to_pandas()
    model = MDLClassifier(max_epochs=1, d_embed=4, hidden=(8,), config={"data.shares.history": "item"})
    model.fit(table, target, eval_set=(other, other.pop("bought")))
    assert model.predict_proba(table).shape == (300, 2)

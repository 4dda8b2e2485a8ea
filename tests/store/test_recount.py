"""Evidence counted again on training and validation rows: what it knows, and what no row may be told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.config.settings import Config
from fielddep.encoding.evidence import Evidence
from fielddep.encoding.learn_evidence import N_FOLDS
from fielddep.encoding.rows import EVIDENCE, FOLDS
from fielddep.errors import StoreError
from fielddep.store.build import build_store
from fielddep.store.recount import recount
from fielddep.store.shards import FileShards
from fielddep.store.store import Store
from tests.helpers import raises

N_ROWS = 900
PARTS = np.random.default_rng(1).choice(3, N_ROWS, p=[0.6, 0.25, 0.15]).astype(np.uint8)
TASKS = ("binary", "multiclass", "regression")


def visits(task: str = "binary") -> pl.DataFrame:
    """Users and items; the item called late occurs in validation rows only."""
    rng = np.random.default_rng(0)
    user, item = rng.integers(30, size=N_ROWS), rng.integers(8, size=N_ROWS)
    score = (user + item) % 3 + rng.normal(size=N_ROWS)
    target = {"binary": (score > 1).astype(int), "multiclass": np.array(list("abc"))[(user + item) % 3]}
    items = [f"i{i}" for i in item]
    for row in np.flatnonzero(PARTS == 1)[:20]:
        items[row] = "late"
    return pl.DataFrame(
        {
            "user": [f"u{u}" for u in user],
            "item": items,
            "w": rng.uniform(0.2, 3.0, size=N_ROWS),
            "time": np.arange(N_ROWS),
            "good": target.get(task, score),
        }
    ).with_columns(part=pl.Series(["train", "validation", "test"]).gather(PARTS))


def config(**settings: object) -> Config:
    values = {
        "data.target": "good",
        "data.fields": ["user", "item"],
        "data.crosses": "none",
        "data.evidence": [["user", "item"]],
        "data.counts_from": "all",
        "split.method": "column",
        "split.column": "part",
    }
    return Config().replace({**values, **{key.replace("__", "."): value for key, value in settings.items()}})


def random_split(**settings: object) -> Config:
    return config(**{"split__method": "random", "split__column": None, **settings})


def evidence_of(store: Store) -> Evidence:
    assert store.encoder.evidence is not None
    return store.encoder.evidence


def said(store: Store) -> np.ndarray:
    """Statements about all rows (R, K, W)."""
    evidence = evidence_of(store)
    statements = store.read(0, store.n_rows).arrays[EVIDENCE]
    assert isinstance(statements, np.ndarray)
    return statements.reshape(store.n_rows, len(evidence.cells), evidence.width)


def same_evidence(one: Evidence, two: Evidence) -> bool:
    return one.to_json() == two.to_json() and all(
        np.array_equal(array, two.arrays()[name]) for name, array in one.arrays().items()
    )


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_it_is_that_of_a_split_in_which_validation_rows_train(task: str, weight: str | None) -> None:
    """Cells, base rate, priors and statements; the mean of the weights too."""
    frame = visits(task)
    settings = config(data__weight=weight, data__evidence_min_rows=2)
    all_train = frame.with_columns(part=pl.col("part").replace("validation", "train"))
    expected = build_store(all_train, settings.replace({"split.validation": 0.0}))
    before = build_store(frame, settings)
    found = recount(before)
    assert same_evidence(evidence_of(found), evidence_of(expected))
    assert np.array_equal(said(found), said(expected))
    assert not same_evidence(evidence_of(found), evidence_of(before))
    assert found.encoder.digest == before.encoder.digest and found.n_rows_of == before.n_rows_of


@pytest.mark.parametrize("task", TASKS)
def test_values_of_validation_rows_are_known(task: str) -> None:
    before = build_store(visits(task), config())
    after = recount(before)
    late = before.encoder.values("item").to_list().index("late")
    for store, n_rows in ((before, 0), (after, 20)):
        n_1, s_1C = evidence_of(store).cells[1].sums(np.array([late]))
        assert n_1.tolist() == [n_rows]
    rows = before.read(0, N_ROWS)
    target = np.asarray(rows.target_R)[rows.ids_RF[:, 1] == late]
    sums = np.bincount(target, minlength=3) if task == "multiclass" else [target.astype(float).sum()]
    np.testing.assert_allclose(s_1C[0], sums, atol=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_a_store_on_disk_is_recounted_alike_and_stays_as_it_was(task: str, tmp_path: Path) -> None:
    memory, disk = build_store(visits(task), config()), build_store(visits(task), config(), tmp_path / "store")
    (tmp_path / "scratch").mkdir()
    found, expected = recount(disk, tmp_path / "scratch"), recount(memory)
    assert same_evidence(evidence_of(found), evidence_of(expected))
    assert np.array_equal(said(found), said(expected))
    assert np.array_equal(found.read(850, 2_000).arrays[EVIDENCE], expected.read(850, 2_000).arrays[EVIDENCE])
    assert not list((tmp_path / "scratch").iterdir())
    disk.verify()
    assert np.array_equal(said(Store.open(tmp_path / "store")), said(memory))


def test_a_row_is_not_told_its_own_target() -> None:
    """The target of a validation row changes what others are told, but neither its own statements nor its scale."""
    frame, row = visits("regression"), int(np.flatnonzero(PARTS == 1)[30])
    changed = frame.with_columns(good=pl.col("good") + (pl.col("time") == row))  # too little to move a prior
    one, two = (said(recount(build_store(table, config()))) for table in (frame, changed))
    assert np.array_equal(one[row], two[row])
    same_user = ((frame["user"] == frame["user"][row]) & (frame["time"] != row)).to_numpy()
    assert (one[same_user, 0, 0] != two[same_user, 0, 0]).mean() > 0.5


def test_targets_of_test_rows_reach_nobody() -> None:
    frame = visits()
    changed = frame.with_columns(good=pl.when(pl.col("part") == "test").then(1 - pl.col("good")).otherwise("good"))
    one, two = (recount(build_store(table, config())) for table in (frame, changed))
    assert same_evidence(evidence_of(one), evidence_of(two))
    assert np.array_equal(said(one), said(two))


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    "by_group", [{"split__method": "group", "split__column": "user"}, {"split__group": "user"}], ids=["split", "folds"]
)
def test_rows_of_a_group_do_not_inform_each_other(by_group: dict[str, str], on_disk: bool, tmp_path: Path) -> None:
    """Also if a group has training and validation rows."""
    store = build_store(visits(), random_split(**by_group), tmp_path / "store" if on_disk else None)
    counted = store.parts(0, N_ROWS) < 2
    for found in (store, recount(store)):
        assert (said(found)[store.parts(0, N_ROWS) == 0, 0, -1] == 0).all()
    assert (said(found)[counted, 0, -1] == 0).all() and (said(found)[counted, 1, -1] > 0).mean() > 0.9


def test_rows_do_not_know_later_ones() -> None:
    frame = visits()
    settings = config(split__method="time", split__column="time", split__validation=0.3)
    store = build_store(frame, settings)
    found = recount(store)
    assert evidence_of(found).in_order
    parts, folds = store.parts(0, N_ROWS), store.folds(0, N_ROWS)
    assert folds[parts == 0].max() == N_FOLDS - 1 and (np.diff(folds[parts < 2].astype(int)) >= 0).all()
    assert len(np.unique(folds[parts == 1])) == N_FOLDS // 2  # 30 % of the rows next to 60 %
    first = int(np.flatnonzero(folds == N_FOLDS + 2)[0])
    changed = frame.with_columns(good=pl.when(pl.col("time") >= first).then(1 - pl.col("good")).otherwise("good"))
    other = recount(build_store(changed, settings))
    # The base rate and so statements have changed, but not the rows behind them.
    assert np.array_equal(said(found)[:first, :, -1], said(other)[:first, :, -1])
    per_user = frame.head(first).group_by("user").len()
    told = np.expm1(said(found)[first, 0, -1].astype(float))
    assert told == pytest.approx(per_user.filter(pl.col("user") == frame["user"][first])["len"][0], rel=2e-3)


def test_without_evidence_nothing_is_counted() -> None:
    store = build_store(visits(), config(data__evidence="none"))
    assert recount(store) is store
    assert store.shards.row_folds is None


def test_a_store_without_folds_is_refused(tmp_path: Path) -> None:
    store = build_store(visits(), config(), tmp_path / "store")
    assert isinstance(store.shards, FileShards)
    arrays = {name: spec for name, spec in store.shards.arrays.items() if name != FOLDS}
    with raises(StoreError, "folds", "Encode the table again"):
        recount(replace(store, shards=replace(store.shards, arrays=arrays)))

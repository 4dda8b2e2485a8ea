"""One split: every command gives a row the same part, from whatever source, at once or resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import fielddep.datasets
import fielddep.experiments.ablation.ablate
import fielddep.experiments.compare
import fielddep.experiments.search
import fielddep.report.build
import fielddep.training.fit
from fielddep.artifacts.run import Run
from fielddep.cli import app
from fielddep.config.settings import Config
from fielddep.datasets.recipe import Facts, StreamRecipe
from fielddep.encoding.coded import Sizes
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.split import PART_NAMES
from fielddep.sklearn_api.estimators import BaselineClassifier
from fielddep.store.build import build_store
from fielddep.store.store import Store
from fielddep.tables.row_stream import open_rows
from fielddep.training.prepare import Prepared
from tests.encoding.test_split import oracle
from tests.observers import StageWatch
from tests.streamed import small_chunks

__all__ = ["small_chunks"]
pytestmark = pytest.mark.usefixtures("small_chunks")

N_ROWS = 600
METHODS: dict[str, dict[str, Any]] = {
    "random": {"method": "random", "seed": 1},
    "stratified": {"method": "stratified", "test": 0.15},
    "group": {"method": "group", "column": "user", "seed": 2},
    "time": {"method": "time", "column": "day"},
    "time in one day": {"method": "time", "column": "month"},
    "column": {"method": "column", "column": "part"},
    "column, validation drawn": {"method": "column", "column": "half", "validation": 0.2},
}
STAGES = ("read", "split", "learn", "encode")


class Stop(Exception):  # noqa: N818
    """Raised where only the rows matter, and not what comes after."""


def made_table() -> pl.DataFrame:
    """Fields of several types; the weight of a row is its number, from 1, so that a row can be told by it."""
    rng = np.random.default_rng(0)
    colour, size = rng.integers(0, 4, N_ROWS), rng.integers(0, 6, N_ROWS)
    return pl.DataFrame(
        {
            "colour": np.array(["red", "green", "blue", "5.0"])[colour],
            "size": size,
            "user": rng.integers(0, 70, N_ROWS),
            "day": pl.Series(rng.integers(19000, 19300, N_ROWS)).cast(pl.Int32).cast(pl.Date),
            "month": [202401] * N_ROWS,
            "part": rng.choice(["train", "Valid", "TEST"], N_ROWS, p=[0.7, 0.1, 0.2]),
            "half": rng.choice(["train", "test"], N_ROWS),
            "weight": np.arange(1, N_ROWS + 1),
            "good": ((colour + size) % 3 == 0).astype(int),
        }
    )


TABLE = made_table()


def settings(method: str) -> dict[str, Any]:
    """Settings of the table, two fields only, and of a quick model."""
    return {
        "data.target": "good",
        "data.weight": "weight",
        "data.fields": ["colour", "size"],
        "data.crosses": "none",
        **{f"split.{key}": value for key, value in METHODS[method].items()},
    }


MODEL = {"model.name": "lr", "train.max_epochs": 1}


def words(values: dict[str, Any]) -> list[str]:
    """Settings as the command line takes them."""
    return [word for path, value in values.items() for word in ("--set", f"{path}={value}".replace("'", '"'))]


def expected(method: str) -> np.ndarray | None:
    """Parts of drawn rows by sorting; None for methods that have tests of their own."""
    labels, half = TABLE["good"].to_numpy(), TABLE["half"].to_numpy()
    if method == "random":
        return oracle(np.zeros(N_ROWS, dtype=int), 0.1, 0.1, 1)
    if method == "stratified":
        return oracle(labels + 1, 0.1, 0.15, 0)
    if method == "column, validation drawn":
        return np.where(half == "test", 2, oracle(np.where(half == "train", 0, -1), 0.2, 0, 0))
    return None


# --- parts as each command has them ---------------------------------------------------------------------------


def parts_by_weight(parts: Iterable[tuple[str, Iterable[EncodedRows]]]) -> list[int]:
    """Part of every row, told by its weight."""
    found = np.full(N_ROWS, 9)
    for name, chunks in parts:
        for chunk in chunks:
            found[np.asarray(chunk.arrays["weight"]).astype(int) - 1] = PART_NAMES.index(name)
    return found.tolist()


def parts_of(data: Prepared) -> list[int]:
    return parts_by_weight((name, rows.chunks()) for name, rows in data.parts.items())


def parts_of_store(store: Store) -> list[int]:
    return store.parts(0, N_ROWS).tolist()


Caught = list[list[int]]


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Caught:
    """Parts that reach a training, a search, a comparison, an ablation or a report, which then end."""
    found: Caught = []

    def stop(read: Callable[..., list[int]]) -> Callable[..., None]:
        def wrapped(*args: Any, **_: Any) -> None:
            found.append(read(*args))
            raise Stop

        return wrapped

    monkeypatch.setattr(fielddep.training.fit, "train", stop(lambda prepared: parts_of(prepared)))
    for module, name, place in (
        (fielddep.experiments.search, "search", 0),
        (fielddep.experiments.compare, "compare", 1),
        (fielddep.experiments.ablation.ablate, "ablate", 1),
    ):
        monkeypatch.setattr(module, name, stop(lambda *args, place=place: parts_of_store(args[place])))
    return found


def call(*arguments: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, Stop), result.output


@pytest.mark.parametrize("method", METHODS)
def test_every_command_splits_alike(
    method: str, tmp_path: Path, caught: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv, parquet = str(tmp_path / "table.csv"), str(tmp_path / "table.parquet")
    TABLE.write_csv(csv)
    TABLE.write_parquet(parquet)
    config = Config().replace({**settings(method), **MODEL})
    store = build_store(csv, config, tmp_path / "store")
    parts = parts_of_store(store)
    assert sorted(set(parts)) == [0, 1, 2]
    oracles = expected(method)
    assert oracles is None or parts == oracles.tolist()

    encoding, model = words(settings(method)), words(MODEL)
    call("fit", csv, "--out", str(tmp_path / "csv"), *encoding, *model)
    call("fit", parquet, "--out", str(tmp_path / "parquet"), *encoding, *model)
    call("fit", str(tmp_path / "store"), "--out", str(tmp_path / "stored"), *model)
    with pytest.raises(Stop):
        Run.train(TABLE, config, tmp_path / "frame")
    call("search", csv, "--out", str(tmp_path / "search"), "--model", "lr", *encoding)
    call("compare", parquet, "--out", str(tmp_path / "compare"), "--models", "lr", "--no-search", *encoding)
    call("ablate", csv, "--out", str(tmp_path / "ablate"), "--no-search", *encoding)
    given = {path: value for path, value in settings(method).items() if path not in ("data.target", "data.weight")}
    with pytest.raises(Stop):
        BaselineClassifier("lr", config={**given, "split.test": config.split.test}).fit(
            TABLE.drop("good", "weight"), TABLE["good"].to_numpy(), sample_weight=TABLE["weight"].to_numpy()
        )
    assert len(caught) == 8
    assert all(found == parts for found in caught)
    assert parts_of_store(build_store(TABLE, config, tmp_path / "of frame")) == parts
    assert parts_of_store(_prepared(csv, config, tmp_path / "recipe", monkeypatch)) == parts


def _prepared(path: str, config: Config, out: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """What `data prepare` makes of a data set of one CSV file."""
    facts = Facts(
        name="made",
        title="Made",
        rows=N_ROWS,
        parts=(N_ROWS, 0, 0),
        positives=1,
        categories=10,
        fields=("colour", "size"),
        target="good",
        task="binary",
        page="-",
        terms="-",
    )
    recipe = StreamRecipe(facts=facts, open=lambda _: open_rows(path, config.data))
    monkeypatch.setitem(fielddep.datasets.RECIPES, "made", recipe)
    values = {path: value for path, value in settings("random").items() if path.startswith("data.")}
    values |= {f"split.{key}": value for key, value in config.to_dict()["split"].items() if value is not None}
    result = CliRunner().invoke(app, ["data", "prepare", "made", "--out", str(out), *words(values)])
    assert result.exit_code == 0, result.output
    return Store.open(out)


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_encoding_splits_alike(method: str, tmp_path: Path) -> None:
    TABLE.write_csv(tmp_path / "table.csv")
    config, sizes = (
        Config().replace(settings(method)),
        Sizes(chunk_rows=64, part_rows=32, shard_rows=128, checkpoint_rows=64),
    )
    whole = parts_of_store(build_store(tmp_path / "table.csv", config, tmp_path / "whole", sizes=sizes))

    def interrupt(stage: str) -> StageWatch:
        def check(reached: str, n_rows: int) -> None:
            if reached == stage and (n_rows > 300 or stage in ("split", "learn")):
                raise KeyboardInterrupt

        return StageWatch(check)

    with pytest.raises(KeyboardInterrupt):
        build_store(tmp_path / "table.csv", config, tmp_path / "store", sizes=sizes, observer=interrupt("read"))
    for stage in STAGES[1:]:
        with pytest.raises(KeyboardInterrupt):
            build_store(
                tmp_path / "table.csv", config, tmp_path / "store", sizes=sizes, resume=True, observer=interrupt(stage)
            )
    store = build_store(tmp_path / "table.csv", config, tmp_path / "store", sizes=sizes, resume=True)
    assert parts_of_store(store) == whole


@pytest.mark.parametrize("method", METHODS)
def test_the_report_of_a_run_splits_alike(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TABLE.write_csv(tmp_path / "table.csv")
    TABLE.write_parquet(tmp_path / "table.parquet")
    found: list[Prepared] = []
    split_again = fielddep.report.build._split_again

    def spy(*args: Any) -> None:
        found.append(split_again(*args))
        raise Stop

    monkeypatch.setattr(fielddep.report.build, "_split_again", spy)
    run = Run.train(TABLE, Config().replace({**settings(method), **MODEL}), tmp_path / "run")
    assert run.trained is not None
    call("report", str(tmp_path / "run"), str(tmp_path / "table.parquet"))
    assert len(found) == 1
    assert parts_of(found[0]) == parts_of(run.trained.prepared)

"""The RUN folder: what it holds, when it is refused, when it is replaced."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.artifacts.run import RUN, Run, resolve_bundle
from fielddep.config.settings import Config
from fielddep.encoding.split import SPLIT_VERSION
from fielddep.errors import BundleError, CheckpointError, ConfigError, MissingExtraError, SchemaError, UserError
from fielddep.observer import Observer
from fielddep.training.checkpoint import Evaluation
from fielddep.training.prepare import Prepared
from tests.helpers import raises, states

FILES = {"bundle", "config.toml", "environment.json", "history.jsonl", "metrics.json", "request.toml"}
CONFIG = Config().replace(
    {
        "data.target": "y",
        "train.max_epochs": 2,
        "train.eval_every": 1,
        "train.batch_size": 32,
        "train.threads": 1,
        "model.hidden": [8],
    }
)


class Stop(Observer):
    """Interrupts at an evaluation."""

    def __init__(self, at: int = 1) -> None:
        self.left = at

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def make_table(n_rows: int = 200, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 9, n_rows), rng.integers(0, 7, n_rows)
    return pl.DataFrame({"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item], "y": (user + item) % 2})


TABLE = make_table()


def unfinished(folder: Path, config: Config = CONFIG) -> None:
    with pytest.raises(KeyboardInterrupt):
        Run.train(TABLE, config, folder, observer=Stop())


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    source = tmp_path_factory.mktemp("source") / "table.csv"
    TABLE.write_csv(source)
    return Run.train(TABLE, CONFIG, tmp_path_factory.mktemp("run") / "a" / "run", name=str(source))


def test_a_run_holds_exactly_its_files(finished: Run) -> None:
    assert {path.name for path in finished.folder.iterdir()} == FILES
    assert RUN.state(finished.folder) == "finished"


def test_request_is_as_asked_and_config_as_used(finished: Run) -> None:
    assert Config.from_toml(finished.folder / "request.toml") == CONFIG
    assert finished.config.model.d_embed is not None
    assert finished.config.train.batch_size == 32
    assert finished.config == Bundle.load(finished.bundle).config


def test_metrics_and_history(finished: Run) -> None:
    assert set(finished.metrics) == {"test", "test_base_rate", "validation", "validation_base_rate"}
    lines = [json.loads(line) for line in (finished.folder / "history.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1.0, 2.0]
    best = min(line["validation"]["loss"] for line in lines)
    assert finished.metrics["validation"]["loss"] <= best  # its parts are mixed for these rows


def test_environment_names_versions_and_source(finished: Run) -> None:
    record = json.loads((finished.folder / "environment.json").read_text())
    assert set(record) == {
        *("format", "split_version"),
        *("fielddep", "python", "torch", "polars", "platform", "cpu_count", "threads", "command", "source"),
    }
    assert record["split_version"] == SPLIT_VERSION
    assert record["polars"] == pl.__version__
    assert record["source"]["name"] == "table.csv"
    assert record["source"]["bytes"] > 1000
    assert (record["source"]["rows"], record["source"]["columns"]) == (200, ["user", "item", "y"])


def test_resolve_bundle_takes_run_and_bundle(finished: Run) -> None:
    assert resolve_bundle(finished.folder) == resolve_bundle(finished.bundle) == finished.bundle
    assert len(Predictor(resolve_bundle(finished.folder)).predict(TABLE)) == 200


def test_resolve_bundle_refuses_anything_else(tmp_path: Path) -> None:
    with raises(BundleError, tmp_path / "none"):
        resolve_bundle(tmp_path / "none")
    with raises(BundleError, "no run", "request.toml"):
        resolve_bundle(tmp_path)


def test_existing_run_is_refused_and_untouched(finished: Run) -> None:
    before = content(finished.folder)
    with raises(UserError, "--force"):
        Run.train(TABLE, CONFIG, finished.folder)
    assert content(finished.folder) == before


def test_finished_run_is_left_by_resume(finished: Run, caplog: pytest.LogCaptureFixture) -> None:
    before = content(finished.folder)
    with caplog.at_level(logging.WARNING):
        assert Run.train(TABLE, CONFIG, finished.folder, resume=True) == finished
    assert states(caplog.text, finished.folder, "finished")
    assert content(finished.folder) == before


def test_force_and_resume_exclude_each_other(tmp_path: Path) -> None:
    with raises(UserError, "--force", "--resume"):
        RUN.check(tmp_path, force=True, resume=True)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_other_things_is_never_written_to(tmp_path: Path, force: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with raises(UserError, "no run", "--force"):
        Run.train(TABLE, CONFIG, tmp_path, force=force)
    assert content(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with raises(UserError, "no run"):
        Run.train(TABLE, CONFIG, tmp_path / "run", force=True)


def test_an_empty_folder_and_leftovers_of_a_kill_are_taken(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.abc").mkdir()
    (tmp_path / ".bundle.xyz").mkdir()
    assert RUN.state(tmp_path) == "absent"
    Run.train(TABLE, CONFIG, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_unfinished_run_lies_in_checkpoint_only(tmp_path: Path) -> None:
    unfinished(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint"]
    assert RUN.state(tmp_path / "run") == "unfinished"
    with raises(UserError, "unfinished", "--resume"):
        Run.open(tmp_path / "run")
    with raises(UserError, "--resume", "--force"):
        Run.train(TABLE, CONFIG, tmp_path / "run")


def test_resume_ends_like_an_uninterrupted_run(tmp_path: Path, finished: Run) -> None:
    unfinished(tmp_path / "run")
    resumed = Run.train(TABLE, CONFIG, tmp_path / "run", resume=True)
    assert {path.name for path in resumed.folder.iterdir()} == FILES
    assert content(resumed.bundle) == content(finished.bundle)
    assert resumed.metrics == finished.metrics


def test_resume_begins_where_there_is_no_run(tmp_path: Path, finished: Run) -> None:
    run = Run.train(TABLE, CONFIG, tmp_path / "new", resume=True)
    assert content(run.bundle) == content(finished.bundle)


def test_resume_names_the_setting_that_changed(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with raises(ConfigError, "train.max_epochs", 2, 3):
        Run.train(TABLE, CONFIG.replace({"train.max_epochs": 3}), tmp_path, resume=True)
    with raises(ConfigError, "train.lr", "None", 0.1):
        Run.train(TABLE, CONFIG.replace({"train.lr": 0.1}), tmp_path, resume=True)
    assert RUN.state(tmp_path) == "unfinished"


@pytest.mark.parametrize("number", [None, 1, 99])
def test_resume_refuses_a_run_whose_rows_came_in_another_order(tmp_path: Path, number: int | None) -> None:
    unfinished(tmp_path)
    path = tmp_path / "checkpoint" / "environment.json"
    record = json.loads(path.read_text("utf-8")) | {"format": number}
    path.write_text(json.dumps({key: value for key, value in record.items() if value is not None}), "utf-8")
    with pytest.raises(CheckpointError, match=r"another version .*--force"):
        Run.train(TABLE, CONFIG, tmp_path, resume=True)
    assert RUN.state(tmp_path) == "unfinished"


def test_resume_refuses_another_table(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with raises(CheckpointError, "rows", 200, 150):
        Run.train(TABLE.head(150), CONFIG, tmp_path, resume=True)
    with raises(CheckpointError, "order"):
        Run.train(TABLE.with_columns(y=1 - pl.col("y")), CONFIG, tmp_path, resume=True)
    with raises(CheckpointError, "order"):
        Run.train(TABLE.reverse(), CONFIG, tmp_path, resume=True)
    with raises(CheckpointError, "columns"):
        Run.train(TABLE.rename({"item": "thing"}), CONFIG, tmp_path, resume=True)


def test_force_replaces_the_run(tmp_path: Path) -> None:
    first = Run.train(TABLE, CONFIG, tmp_path)
    old = content(first.bundle)
    second = Run.train(TABLE, CONFIG.replace({"train.seed": 1}), tmp_path, force=True)
    assert content(second.bundle)["weights.safetensors"] != old["weights.safetensors"]
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert second.config.train.seed == 1


def test_the_old_run_stays_whole_until_the_new_one_is(tmp_path: Path) -> None:
    run = Run.train(TABLE, CONFIG, tmp_path)
    old = content(tmp_path)
    other = CONFIG.replace({"train.seed": 1})
    with pytest.raises(KeyboardInterrupt):
        Run.train(TABLE, other, tmp_path, force=True, observer=Stop())
    assert {k: v for k, v in content(tmp_path).items() if not k.startswith("checkpoint/")} == old
    assert Run.open(tmp_path) == run
    assert Run.train(TABLE, other, tmp_path, resume=True).config.train.seed == 1


def test_force_on_an_unfinished_run_trains_anew(tmp_path: Path) -> None:
    unfinished(tmp_path)
    seen: list[int] = []

    class Steps(Observer):
        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            seen.append(step)

    Run.train(TABLE, CONFIG, tmp_path, force=True, observer=Steps())
    assert seen[0] == 1
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_a_bad_table_loses_nothing(tmp_path: Path) -> None:
    Run.train(TABLE, CONFIG, tmp_path)
    old = content(tmp_path)
    with raises(SchemaError, "two different values"):
        Run.train(TABLE.with_columns(y=pl.lit(1)), CONFIG, tmp_path, force=True)
    assert content(tmp_path) == old


def test_an_unknown_device_is_refused_before_any_work(tmp_path: Path) -> None:
    with raises(ConfigError, "train.device", "'toaster'"):
        Run.train(TABLE, CONFIG.replace({"train.device": "toaster"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises(UserError, "Not a directory"):
        Run.train(TABLE, CONFIG, tmp_path / "file" / "run")


def test_split_warnings_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parts = ["train"] * 160 + ["validation"] * 40
    table = TABLE.sort("y").with_columns(part=pl.Series(parts))
    config = CONFIG.replace({"split.method": "column", "split.column": "part"})
    with caplog.at_level(logging.WARNING):
        run = Run.train(table, config, tmp_path)
    assert states(caplog.text, "validation", "class '0'")
    assert set(run.metrics) == {"validation", "validation_base_rate"}
    assert "auc" not in run.metrics["validation"]


def test_tensorboard_events_are_part_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    Run.train(TABLE, CONFIG, tmp_path, tensorboard=True)
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "tensorboard"}
    assert [p.name.startswith("events.out") for p in (tmp_path / "tensorboard").iterdir()] == [True]
    Run.train(TABLE, CONFIG, tmp_path, force=True)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with raises(MissingExtraError, "fielddep[tensorboard]"):
        Run.train(TABLE, CONFIG, tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_an_observer_sees_the_split(tmp_path: Path) -> None:
    sizes: list[dict[str, int]] = []

    class Sizes(Observer):
        def on_prepared(self, prepared: Prepared) -> None:
            sizes.append({name: len(part) for name, part in prepared.parts.items()})

    Run.train(TABLE, CONFIG, tmp_path, observer=Sizes())
    assert sizes == [{"train": 160, "validation": 20, "test": 20}]

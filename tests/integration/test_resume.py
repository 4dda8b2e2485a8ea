"""Resuming after `kill -9`: the end must be bit-equal to that of a run that was never killed.

A driver process imports the library once and forks a child for every kill; a child trains until it kills itself at
the moment asked for. What this does not catch: a power failure that loses what the operating system had not written.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fielddep.artifacts.run import RUN, Run
from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.observer import Observer
from fielddep.store import loader as store_loader
from fielddep.store.store import Store
from tests.conftest import small_frame
from tests.helpers import states
from tests.stores import write_store

# Where a child kills itself, the n-th time it gets there: (name, n). A list of them kills its resumption as well.
KILLS: dict[str, list[tuple[str, int]]] = {
    "before-the-first-evaluation": [("step", 3)],
    "after-the-first-evaluation": [("evaluation", 1)],
    "between-evaluations": [("step", 6)],
    "in-a-later-epoch": [("step", 21)],
    "history-written-checkpoint-not": [("checkpoint", 3)],
    "best-written-checkpoint-not": [("best", 2)],
    "after-the-last-evaluation": [("evaluation", 8)],
    "bundle-half-written": [("swap", 1)],
    "files-half-moved": [("finish", 1)],
    "killed-three-times": [("step", 2), ("checkpoint", 2), ("evaluation", 3)],
}
OPTIMIZERS = ("adam", "adagrad")
SETTINGS = {
    "data.target": "good",
    "train.max_epochs": 4,
    "train.eval_every": 2,
    "train.plateau_patience": 1,
    "train.plateau_factor": 0.5,
    "model.batch_norm": "all",
    "train.patience": 100,
    "train.batch_size": 40,
    "train.threads": 1,
    "train.lr": 0.02,
    "train.embedding_l2": 1e-4,
    "model.dropout": 0.2,
    "model.embedding_dropout": 0.1,
    "model.hidden": [8, 8],
    "model.d_embed": 4,
}
DRIVER = """
import json, os, signal, sys
from pathlib import Path
import polars as pl
import torch
from fielddep.artifacts import bundle, run
from fielddep.config.settings import Config
from fielddep.store import loader as store_loader
from fielddep.store.store import Store, is_store
from fielddep.training import checkpoint
from fielddep.observer import Observer

table, out, plan = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
if is_store(table):
    store_loader.BUFFER_ROWS, store_loader.CHUNK_ROWS = 64, 8


class Moments(Observer):
    def __init__(self, name, count):
        self.name, self.left = name, count

    def reach(self, name):
        if name == self.name:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)

    def on_step(self, step, n_rows, loss):
        self.reach("step")

    def on_evaluation(self, evaluation):
        self.reach("evaluation")


def patch(moments):
    real_save, real_write, real_swap = checkpoint.CheckpointFolder.save, checkpoint.write_atomically, bundle._swap
    real_copy = run._copy

    def save(self, *args):
        moments.reach("checkpoint")
        real_save(self, *args)

    def write(path, fill):
        real_write(path, fill)
        if path.name.startswith("best-"):
            moments.reach("best")

    def swap(*args):
        moments.reach("swap")
        real_swap(*args)

    def copy(*args):
        moments.reach("finish")
        real_copy(*args)

    checkpoint.CheckpointFolder.save, checkpoint.write_atomically = save, write
    bundle._swap, run._copy = swap, copy


def child(folder, settings, name, count):
    torch.set_num_threads(1)
    moments = Moments(name, count)
    patch(moments)
    rows = Store.open(table) if is_store(table) else pl.read_parquet(table)
    run.Run.train(rows, Config().replace(settings), folder, resume=True, observer=moments)
    os._exit(0)


for case, (settings, kills) in plan.items():
    for name, count in kills:
        pid = os.fork()
        if pid == 0:
            child(out / case, settings, name, count)
        status = os.waitpid(pid, 0)[1]
        print(case, name, count, os.WTERMSIG(status) if os.WIFSIGNALED(status) else "not killed")
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume") / "table.parquet"
    small_frame(400).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def killed(table: Path) -> Path:
    """Folder of runs, one a kill and optimiser, all killed with signal 9."""
    plan = {
        f"{o}-{case}": ({**SETTINGS, "train.optimizer": o}, kills) for o in OPTIMIZERS for case, kills in KILLS.items()
    }
    kill(table, table.parent / "killed", plan)
    return table.parent / "killed"


def kill(source: Path, out: Path, plan: dict[str, tuple[dict[str, object], list[tuple[str, int]]]]) -> None:
    """Train on a table or store in children that kill themselves, one run a case of the plan."""
    words = [sys.executable, "-W", "ignore", "-c", DRIVER, str(source), str(out), json.dumps(plan)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == sum(len(kills) for _, kills in plan.values())
    assert all(line.endswith(" 9") for line in lines), lines


@pytest.fixture(scope="module")
def straight(table: Path) -> dict[str, Path]:
    """A run that was never killed, for each optimiser."""
    found = {}
    for optimizer in OPTIMIZERS:
        config = Config().replace({**SETTINGS, "train.optimizer": optimizer})
        found[optimizer] = Run.train(small_frame(400), config, table.parent / f"straight-{optimizer}").folder
    return found


def outcome(run: Path) -> dict[str, object]:
    """All that must be the same: every byte of the bundle, settings, metrics, and the history but for its times."""
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for line in history:
        del line["seconds"], line["rows_per_s"]
    names = ("config.toml", "request.toml", "metrics.json")
    return {
        "history": history,
        **{name: (run / name).read_bytes() for name in names},
        **{path.name: path.read_bytes() for path in (run / "bundle").iterdir()},
    }


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("case", KILLS)
def test_a_killed_run_ends_like_one_that_was_not(
    table: Path, killed: Path, straight: dict[str, Path], optimizer: str, case: str
) -> None:
    folder = killed / f"{optimizer}-{case}"
    assert RUN.state(folder) == "unfinished"
    config = Config().replace({**SETTINGS, "train.optimizer": optimizer})
    Run.train(small_frame(400), config, folder, resume=True)
    expected = outcome(straight[optimizer])
    assert len(expected["history"]) == 8  # type: ignore[arg-type]
    assert outcome(folder) == expected
    assert sorted(path.name for path in folder.iterdir()) == sorted(p.name for p in straight[optimizer].iterdir())


def test_a_killed_run_on_a_store_ends_like_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position within an epoch is found again, in the sixth of seven buffers for one."""
    monkeypatch.setattr(store_loader, "BUFFER_ROWS", 64)
    monkeypatch.setattr(store_loader, "CHUNK_ROWS", 8)
    config = Config().replace(SETTINGS)
    store = write_store(tmp_path / "store", small_frame(400), config, chunk_rows=16)
    cases = ("before-the-first-evaluation", "between-evaluations", "best-written-checkpoint-not", "killed-three-times")
    kill(store.folder, tmp_path / "killed", {case: (SETTINGS, KILLS[case]) for case in cases})
    expected = outcome(Run.train(store, config, tmp_path / "straight").folder)
    assert len(expected["history"]) == 8  # type: ignore[arg-type]
    for case in cases:
        assert RUN.state(tmp_path / "killed" / case) == "unfinished"
        Run.train(Store.open(store.folder), config, tmp_path / "killed" / case, resume=True)
        assert outcome(tmp_path / "killed" / case) == expected, case


def test_the_command_line_resumes_after_a_kill_at_no_chosen_moment(table: Path, tmp_path: Path) -> None:
    words = ["fit", str(table), "--target", "good", "--quiet"]
    for key, value in {**SETTINGS, "train.max_epochs": 30}.items():
        words += ["--set", f"{key}={value}"]
    out = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-m", "fielddep", *words, "--out", str(out)])
    deadline = time.monotonic() + 60
    while (
        process.poll() is None
        and not (out / "checkpoint" / "checkpoint.safetensors").exists()
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert RUN.state(out) == "unfinished"
    assert main([*words, "--out", str(out), "--resume"]) == 0
    assert main([*words, "--out", str(tmp_path / "straight")]) == 0
    assert outcome(out) == outcome(tmp_path / "straight")


def test_same_seed_same_weights_and_different_seed_different_weights(tmp_path: Path) -> None:
    weights = []
    for number, seed in enumerate((0, 0, 1)):
        config = Config().replace({**SETTINGS, "train.seed": seed})
        run = Run.train(small_frame(400), config, tmp_path / str(number))
        weights.append((run.bundle / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_a_damaged_checkpoint_is_named(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {**SETTINGS, "train.optimizer": "adam", "model.direct": "none"}
    folder = tmp_path / "run"
    words = ["fit", str(table), "--target", "good", "--out", str(folder), "--quiet"]
    for key, value in config.items():
        words += ["--set", f"{key}={value}"]
    _interrupt(Config().replace(config), folder)
    path = folder / "checkpoint" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    assert main([*words, "--resume"]) == 2
    assert states(capsys.readouterr().err, path, "cannot be read")
    assert main([*words, "--force"]) == 0


def _interrupt(config: Config, folder: Path) -> None:
    class Stop(Observer):
        def on_evaluation(self, evaluation: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run.train(small_frame(400), config, folder, observer=Stop())

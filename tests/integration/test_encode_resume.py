"""Encoding after `kill -9`, on a full disk, and with sources that change: never a half store that looks whole.

A driver process forks a child for every kill; a child encodes until it kills itself at the moment asked for. What this
does not catch: a power failure that loses what the operating system had not written.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.errors import UserError
from fielddep.store import build as streaming
from fielddep.store.build import build_store
from fielddep.store.folder import STORE, FileCells, StoreFolder
from fielddep.store.format import ShardWriter
from fielddep.store.store import Store, is_store
from fielddep.tables import delimited as delimited_rows
from tests.helpers import raises, states
from tests.observers import StageWatch
from tests.streamed import SMALL, SMALL_SIZES, mixed_frame, small_chunks

__all__ = ["small_chunks"]
pytestmark = pytest.mark.usefixtures("small_chunks")

SETTINGS = {"data.target": "good", "data.weight": "weight", "data.exclude": ["grade", "amount"]}
CONFIG = Config().replace(SETTINGS)
# Where a child kills itself, the n-th time it gets there. A list of them kills its resumption as well.
KILLS: dict[str, list[tuple[str, int]]] = {
    "before-the-first-checkpoint": [("read", 2)],
    "between-checkpoints": [("read", 9)],
    "values-written-progress-not": [("progress", 2)],
    "in-the-second-file": [("read", 25)],
    "after-the-last-row": [("split", 1)],
    "while-learning": [("learn", 1)],
    "in-the-first-shard": [("encode", 2)],
    "in-a-later-shard": [("encode", 7)],
    "shard-written-progress-not": [("shard-saved", 1)],
    "all-written-manifest-not": [("finish", 1)],
    "before-the-move": [("promote", 1)],
    "in-the-middle-of-the-move": [("moved", 3)],
    "moved-but-not-tidied": [("tidy", 1)],
    "killed-four-times": [("read", 7), ("read", 9), ("encode", 3), ("promote", 1)],
}
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from fielddep.config.settings import Config
from fielddep.store import build as streaming
from fielddep.store import folder as store_folder
from fielddep.store import store
from tests import streamed
from tests.observers import StageWatch

for (module, name), size in streamed.SMALL.items():
    setattr(module, name, size)
sources, out, settings, plan = json.loads(sys.argv[1])


class Moments:
    def __init__(self, name, count):
        self.name, self.left = name, count

    def reach(self, name):
        if name == self.name:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)


def before(moments, owner, attribute, name):
    real = getattr(owner, attribute)

    def call(*args, **options):
        moments.reach(name(*args) if callable(name) else name)
        return real(*args, **options)

    setattr(owner, attribute, call)


def child(folder, name, count):
    moments = Moments(name, count)
    stage = lambda self, progress: "shard-saved" if "writer" in progress else "progress"
    before(moments, store_folder.StoreFolder, "save_progress", stage)
    before(moments, store.StoreWriter, "finish", "finish")
    before(moments, store_folder.StoreFolder, "promote", "promote")
    before(moments, Path, "replace", lambda path, *_: "moved" if "shard" in path.name else "other")
    before(moments, store_folder, "remove_workdir", lambda path: "tidy" if path.exists() else "other")
    watch = StageWatch(lambda stage, n_rows: moments.reach(stage))
    streaming.build_store(sources, Config().replace(settings), folder, resume=True, observer=watch)
    os._exit(0)


for case, kills in plan.items():
    for name, count in kills:
        pid = os.fork()
        if pid == 0:
            child(Path(out) / case, name, count)
        status = os.waitpid(pid, 0)[1]
        print(case, name, count, os.WTERMSIG(status) if os.WIFSIGNALED(status) else "not killed")
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("encode")
    table = mixed_frame()
    for i, part in enumerate((table[:500], table[500:510], table[510:])):
        part.write_csv(folder / f"{i}.csv")
    return [str(folder / f"{i}.csv") for i in range(3)]


@pytest.fixture(scope="module")
def killed(sources: list[str]) -> Path:
    """Folder of stores, each killed with signal 9."""
    out = Path(sources[0]).parent / "killed"
    words = [sys.executable, "-W", "ignore", "-c", DRIVER, json.dumps([sources, str(out), SETTINGS, KILLS])]
    root = Path(__file__).parents[2]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, cwd=root)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == sum(map(len, KILLS.values()))
    assert all(line.endswith(" 9") for line in lines), lines
    return out


def content(store: Path) -> dict[str, bytes]:
    """Every byte of a store."""
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


@pytest.fixture(scope="module")
def straight(sources: list[str]) -> dict[str, bytes]:
    """A store that was encoded without a break."""
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), size in SMALL.items():
            patch.setattr(module, name, size)
        return content(build_store(sources, CONFIG, Path(sources[0]).parent / "straight").folder)


@pytest.mark.parametrize("case", KILLS)
def test_a_killed_encoding_ends_like_one_that_was_not(
    sources: list[str], killed: Path, straight: dict[str, bytes], case: str
) -> None:
    folder = killed / case
    assert STORE.state(folder) == "unfinished"
    assert is_store(folder) == (case == "moved-but-not-tidied")
    with raises(UserError, "unfinished"):
        build_store(sources, CONFIG, folder)
    build_store(sources, CONFIG, folder, resume=True)
    assert content(folder) == straight
    # Manifest, schema, vocabulary, evidence; ids, measures, evidence, target, weight and parts of three shards.
    assert len(straight) == 4 + 3 * 7


def stop_at(stage: str, count: int) -> StageWatch:
    left = [count]

    def stop(reached: str, n_rows: int) -> None:
        left[0] -= reached == stage
        if not left[0]:
            raise KeyboardInterrupt

    return StageWatch(stop)


def interrupt(sources: object, folder: Path, stage: str = "read", count: int = 20, config: Config = CONFIG) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_store(sources, config, folder, observer=stop_at(stage, count))
    assert STORE.state(folder) == "unfinished"


def test_going_on_reads_only_what_is_left(sources: list[str], tmp_path: Path) -> None:
    interrupt(sources, tmp_path / "store")
    watch = StageWatch()
    build_store(sources, CONFIG, tmp_path / "store", resume=True, observer=watch)
    read = watch.rows("read")
    assert read[0] > SMALL_SIZES.checkpoint_rows
    assert read[-1] == 1500
    interrupt(sources, tmp_path / "other", "encode", 9)
    watch = StageWatch()
    build_store(sources, CONFIG, tmp_path / "other", resume=True, observer=watch)
    assert not watch.rows("read")
    assert watch.rows("encode")[0] == 1024 + 128
    assert content(tmp_path / "store") == content(tmp_path / "other")


@pytest.mark.parametrize("ending", ["parquet", "csv.gz", "odd.csv"])
def test_other_sources_go_on_too(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, table = tmp_path / f"table.{ending}", mixed_frame()
    if ending == "parquet":
        table.write_parquet(path, row_group_size=100)
    elif ending == "csv.gz":
        table.write_csv(path, compression="gzip")
    else:
        monkeypatch.setattr("fielddep.tables.delimited._CSV_ROWS", 50)
        lines = table.write_csv().splitlines()
        path.write_text("\n".join([*lines[:60], "", *lines[60:]]))
    interrupt(path, tmp_path / "store", count=14)
    build_store(path, CONFIG, tmp_path / "store", resume=True)
    build_store(path, CONFIG, tmp_path / "straight")
    assert content(tmp_path / "store") == content(tmp_path / "straight")


@pytest.mark.parametrize("lazy", [False, True])
def test_a_table_in_memory_does_not_go_on(tmp_path: Path, lazy: bool) -> None:
    """Nothing would tell that its other half is of another table."""
    first, other = mixed_frame(), mixed_frame(seed=1)
    interrupt(first.lazy() if lazy else first, tmp_path / "store", count=9)
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    with raises(UserError, "files", "resumed"):
        build_store(other.lazy() if lazy else other, CONFIG, tmp_path / "store", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before
    build_store(other, CONFIG, tmp_path / "store", force=True)
    build_store(other, CONFIG, tmp_path / "begun", resume=True)
    assert content(tmp_path / "store") == content(tmp_path / "begun")


def test_columns_kept_as_numbers_or_left_out_go_on(
    sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SIZES", replace(SMALL_SIZES, max_distinct=100, judged_rows=80))
    for count in (10, 20, 28):
        interrupt(sources, tmp_path / f"store{count}", count=count)
        build_store(sources, CONFIG, tmp_path / f"store{count}", resume=True)
    store = build_store(sources, CONFIG, tmp_path / "straight")
    assert "row" in dict(store.encoder.schema.skipped)
    for count in (10, 20, 28):
        assert content(tmp_path / f"store{count}") == content(tmp_path / "straight")


# --- what must stay the same ----------------------------------------------------------------------------------


def copied(sources: list[str], tmp_path: Path) -> list[str]:
    paths = [tmp_path / Path(source).name for source in sources]
    for source, path in zip(sources, paths, strict=True):
        path.write_bytes(Path(source).read_bytes())
    return [str(path) for path in paths]


def test_other_settings_or_tables_are_refused(sources: list[str], tmp_path: Path) -> None:
    interrupt(sources, tmp_path / "store")
    with raises(UserError, "data.min_count", 1, 3):
        build_store(sources, CONFIG.replace({"data.min_count": 3}), tmp_path / "store", resume=True)
    with raises(UserError, "split.seed", 0, 3):
        build_store(sources, CONFIG.replace({"split.seed": 3}), tmp_path / "store", resume=True)
    with raises(UserError, "0.csv", "2.csv"):
        build_store(sources[:1], CONFIG, tmp_path / "store", resume=True)
    build_store(sources, CONFIG.replace({"train.seed": 3}), tmp_path / "store", resume=True)


@pytest.mark.parametrize(("stage", "count"), [("read", 3), ("read", 30), ("split", 1), ("encode", 5)])
@pytest.mark.parametrize("number", [0, 2])
def test_a_source_that_vanishes_is_named(
    sources: list[str], tmp_path: Path, stage: str, count: int, number: int
) -> None:
    paths = copied(sources, tmp_path)
    left = [count]

    def vanish(reached: str, n_rows: int) -> None:
        left[0] -= reached == stage
        if not left[0] and not (tmp_path / "gone").exists():
            Path(paths[number]).rename(tmp_path / "gone")

    with raises(UserError, paths[number], "vanished"):
        build_store(paths, CONFIG, tmp_path / "store", observer=StageWatch(vanish))
    assert not is_store(tmp_path / "store")
    (tmp_path / "gone").rename(paths[number])
    build_store(paths, CONFIG, tmp_path / "store", resume=True)
    straight = build_store(paths, CONFIG, tmp_path / "straight")
    assert content(tmp_path / "store") == content(straight.folder)


@pytest.mark.parametrize(("stage", "count"), [("read", 3), ("split", 1), ("encode", 5)])
def test_a_source_that_changes_is_named(sources: list[str], tmp_path: Path, stage: str, count: int) -> None:
    paths = copied(sources, tmp_path)
    left = [count]

    def change(reached: str, n_rows: int) -> None:
        left[0] -= reached == stage
        if not left[0]:
            path = Path(paths[1])
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1000))

    with raises(UserError, paths[1], "changed"):
        build_store(paths, CONFIG, tmp_path / "store", observer=StageWatch(change))
    assert not is_store(tmp_path / "store")
    with raises(UserError, paths[1], "changed"):
        build_store(paths, CONFIG, tmp_path / "store", resume=True)
    build_store(paths, CONFIG, tmp_path / "store", force=True)


# --- a full disk ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "method"),
    [(FileCells, "append"), (FileCells, "flush"), (ShardWriter, "append"), (StoreFolder, "save_progress")],
)
def test_a_full_disk_says_what_to_do(
    sources: list[str],
    straight: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
) -> None:
    real, left = getattr(owner, method), [5]

    def fill(self: object, *args: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, *args)

    monkeypatch.setattr(owner, method, fill)
    with raises(UserError, "No space left on device", "--resume") as caught:
        build_store(sources, CONFIG, tmp_path / "store")
    assert re.search(r"\d\.\d [kM]B", str(caught.value))
    assert not is_store(tmp_path / "store")
    assert STORE.state(tmp_path / "store") == "unfinished"
    build_store(sources, CONFIG, tmp_path / "store", resume=True)
    assert content(tmp_path / "store") == straight


@pytest.mark.parametrize("limit", [3_000, 20_000, 60_000])
def test_a_limit_on_the_size_of_files_is_a_full_disk(sources: list[str], tmp_path: Path, limit: int) -> None:
    words = ["encode", *sources, "--out", str(tmp_path / "store"), "--target", "good", "--set", "data.weight=weight"]
    code = (
        "import resource, sys; from fielddep.cli import main; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert not is_store(tmp_path / "store")
    assert main([*words, "--resume", "--quiet"]) == 0
    assert Store.open(tmp_path / "store", check=True).n_rows == 1500


# --- a store in the place of another --------------------------------------------------------------------------


def test_an_old_store_stays_until_the_new_one_is_whole(sources: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "store"
    build_store(mixed_frame(700), CONFIG, folder)
    before = content(folder)
    with pytest.raises(KeyboardInterrupt):
        build_store(sources, CONFIG, folder, force=True, observer=stop_at("encode", 9))
    assert Store.open(folder, check=True).n_rows == 700
    assert before.items() <= {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}.items()
    with raises(UserError, "unfinished"):
        build_store(sources, CONFIG, folder)
    build_store(sources, CONFIG, folder, resume=True)
    assert Store.open(folder, check=True).n_rows == 1500
    smaller = build_store(mixed_frame(100), CONFIG, folder, force=True)
    assert smaller.n_rows == 100
    assert len(content(folder)) == 3 + 5  # no shard of the larger store is left


def test_a_failed_replacement_leaves_the_old_store(tmp_path: Path) -> None:
    build_store(mixed_frame(300), CONFIG, tmp_path / "store")
    before = content(tmp_path / "store")
    bad = mixed_frame(300).with_columns(good=pl.lit(None, pl.Int64))
    with raises(UserError, "target 'good'", "missing"):
        build_store(bad, CONFIG, tmp_path / "store", force=True)
    assert content(tmp_path / "store") == before


def test_an_interrupt_says_how_to_go_on(
    sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(*args: object) -> None:
        raise KeyboardInterrupt

    words = ["encode", *sources, "--target", "good", "--set", "data.weight=weight", "--quiet"]
    monkeypatch.setattr(streaming, "learn_encoder", press)
    assert main([*words, "--out", str(tmp_path / "store")]) == 130
    shown = capsys.readouterr().err
    assert states(shown, "interrupted", "checkpoint")
    assert f"fielddep {' '.join(words)} --out {tmp_path / 'store'} --resume" in shown
    monkeypatch.undo()
    assert main([*words, "--out", str(tmp_path / "store"), "--resume"]) == 0


def test_ctrl_c_in_a_process_can_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    pl.concat([mixed_frame(seed=i) for i in range(150)]).write_csv(path)
    words = ["encode", str(path), "--target", "good", "--out", str(tmp_path / "store"), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "fielddep", *words], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "store" / "unfinished" / "spool" / "codes").exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode in (0, 130), error
    subprocess.run([sys.executable, "-m", "fielddep", *words, "--resume"], check=True)
    assert Store.open(tmp_path / "store", check=True).n_rows == 150 * 1500


def test_a_source_that_could_not_be_read_for_a_moment(
    sources: list[str], straight: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done stays when the operating system fails, and goes when the table itself is at fault."""
    real, left = delimited_rows.open_bytes, [4]

    def fail(path: Path) -> object:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(delimited_rows, "open_bytes", fail)
    with raises(UserError, "1.csv", "Input/output error"):
        build_store(sources, CONFIG, tmp_path / "store")
    assert STORE.state(tmp_path / "store") == "unfinished"
    build_store(sources, CONFIG, tmp_path / "store", resume=True)
    assert content(tmp_path / "store") == straight


@pytest.mark.parametrize(
    ("stage", "name"), [("read", "progress.json"), ("read", "values-00000.arrow"), ("promote", "manifest.json")]
)
def test_what_was_kept_could_not_be_read_for_a_moment(
    sources: list[str],
    straight: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    name: str,
) -> None:
    """A passing failure of the system must not cost the hours that were spent."""

    def press(*args: object) -> None:
        raise KeyboardInterrupt

    if stage == "read":
        interrupt(sources, tmp_path / "store")
    else:
        with monkeypatch.context() as patch:
            patch.setattr(StoreFolder, "promote", press)
            with pytest.raises(KeyboardInterrupt):
                build_store(sources, CONFIG, tmp_path / "store")

    def fail(real: Callable[..., object]) -> Callable[..., object]:
        def read(path: Path, *args: object, **options: object) -> object:
            if Path(path).name == name and "unfinished" in str(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(path, *args, **options)

        return read

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fail(Path.read_text))
        patch.setattr(pl, "read_ipc", fail(pl.read_ipc))
        with raises(UserError, "Input/output error") as caught:
            build_store(sources, CONFIG, tmp_path / "store", resume=True)
    assert isinstance(caught.value.__cause__, OSError)
    assert STORE.state(tmp_path / "store") == "unfinished"
    build_store(sources, CONFIG, tmp_path / "store", resume=True)
    assert content(tmp_path / "store") == straight


def test_a_full_disk_while_packed_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed_frame().write_csv(tmp_path / "table.csv.gz", compression="gzip")
    real, left, watch = FileCells.append, [3], StageWatch()

    def fill(self: FileCells, *args: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(FileCells, "append", fill)
    with raises(UserError, "1.0 MB more"):
        build_store(tmp_path / "table.csv.gz", CONFIG, tmp_path / "store", observer=watch)
    assert [(stage, share) for stage, _, share in watch.seen] == [("read", None)] * 2


def test_damage_of_what_was_kept_throws_nothing_away(sources: list[str], tmp_path: Path) -> None:
    """Only an error of the table or the settings does; whoever damaged the file may bring it back."""
    interrupt(sources, tmp_path / "store")
    segment = tmp_path / "store" / "unfinished" / "spool" / "values-00000.arrow"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:100])
    with raises(UserError, "cannot be read"):
        build_store(sources, CONFIG, tmp_path / "store", resume=True)
    assert STORE.state(tmp_path / "store") == "unfinished"
    segment.write_bytes(whole)
    assert build_store(sources, CONFIG, tmp_path / "store", resume=True).n_rows == 1500

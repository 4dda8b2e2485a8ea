"""What each part adds: which variants a table has, what they are trained on, and how the table reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.encoding.rows import Layout
from fielddep.experiments.ablation.ablate import ablate
from fielddep.experiments.ablation.parts import FULL, MEANINGS, parts_sweep, skipped_parts
from fielddep.experiments.ablation.plan import tuned
from fielddep.experiments.ablation.trainings import ALONE, AblationJob
from fielddep.experiments.plan import find_contender
from tests.experiments.ablation.ablations import fake_runs, plan_of, small_store

CATEGORIES = Layout(names=("a", "b"), n_ids=(4, 4))
WITH_EVIDENCE = Layout(names=("a", "b"), n_ids=(4, 4), evidence=((0,), (1,), (0, 1)), evidence_width=2)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that follows from two fields together, and from nothing else."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 8, 1500), rng.integers(0, 8, 1500)
    good = (rng.integers(0, 2, (8, 8))[a, b] ^ (rng.random(1500) < 0.1)).astype(int)
    frame = pl.DataFrame({"a": [f"a{x}" for x in a], "b": [f"b{x}" for x in b], "good": good})
    folder = tmp_path_factory.mktemp("parts")
    frame.write_csv(folder / "good.csv")
    (folder / "configs").mkdir()
    (folder / "configs" / "mdl.toml").write_text("[model]\nd_embed = 4\nhidden = [8]\n[train]\nmax_epochs = 2\n")
    return folder / "good.csv"


def call(table: Path, out: Path) -> int:
    words = [
        "ablate",
        str(table),
        "--target",
        "good",
        "--out",
        str(out),
        "--what",
        "parts",
        "--seeds",
        "1",
        "--no-search",
        "--quiet",
    ]
    words += ["--threads", "1", "--configs", str(table.parent / "configs")]
    return main([*words, "--set", "data.crosses=none"])


def test_one_command_says_what_each_part_adds(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call(table, out) == 0
    figures = pl.read_csv(out / "parts.csv")
    loss = figures.filter(split="test", metric="logloss").group_by("setting_value").agg(pl.col("value").mean())
    losses = dict(loss.iter_rows())
    assert set(losses) == {FULL, *MEANINGS}
    # Only evidence of pairs can know the pair after two passes.
    assert losses["single values only"] > 1.1 * losses[FULL]
    assert losses["without evidence"] > 1.1 * losses[FULL]
    assert losses["direct networks alone"] < 1.1 * losses[FULL]
    text = (out / "parts.md").read_text()
    assert "| without evidence |" in text and "| full |" in text and "+0.00 %" in text
    assert "data.max_combinations = 0" in text and "Claims" not in text
    done = {path: path.stat().st_mtime_ns for path in out.glob("runs/*.json")}
    assert len(done) == 6
    assert call(table, out) == 0
    assert {path: path.stat().st_mtime_ns for path in done} == done


@pytest.mark.parametrize(
    ("layout", "settings", "skipped"),
    [
        (WITH_EVIDENCE, {}, list(MEANINGS)[:2]),
        (CATEGORIES, {}, list(MEANINGS)[:4]),
        (WITH_EVIDENCE, {"model.direct": "none"}, list(MEANINGS)[:4]),
        (WITH_EVIDENCE, {"model.n_inner_steps": 0}, [*list(MEANINGS)[:2], "without refinement"]),
    ],
)
def test_a_variant_that_would_not_differ_is_not_trained(
    layout: Layout, settings: dict[str, object], skipped: list[str]
) -> None:
    sweep = parts_sweep(tuned(Config().replace(settings)), find_contender("mdl-wo-dep").config(settings), layout, {})
    assert skipped_parts(sweep) == tuple(skipped)
    assert sweep.control == FULL
    assert len({training.name for training in sweep.trainings}) == len(sweep.trainings)


def test_changes_are_paired_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spread between seeds is far larger than that of the changes."""

    def make_up(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
        loss = 0.3 + 0.1 * job.seed
        worse = {"mdl-wo-dep": 1.02, "trained_steps-0": 1.01 + 0.01 * job.seed}.get(job.contender, 1.0)
        own = {"logloss": worse * loss, "auc": 0.9}
        return {**own, f"logloss@{ALONE}": 1.5 * loss} if job.alone else own

    names = fake_runs(monkeypatch, make_up)
    answer = ablate("shop", small_store(tmp_path / "store"), tmp_path / "out", plan_of("parts", seeds=2))[0]
    assert len(names) == len(set(names))
    [grid] = answer.grids
    cells = {row[0].text: [cell.text for cell in row[1:]] for row in grid.rows}
    assert cells["full"][1] == "+0.00 % ± 0.00"
    assert cells["without dependencies"][3] == "+2.00 % ± 0.00"
    assert cells["without refinement"][3] == "+1.50 % ± 0.71"
    assert cells["direct networks alone"][3] == "+50.00 % ± 0.00"

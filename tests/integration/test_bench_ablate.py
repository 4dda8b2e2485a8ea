"""The benchmark of ablations: which calls it makes, and what it takes over."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from fielddep.experiments.plan import find_contender, read_settings

ACCURACY = Path(__file__).parents[2] / "benchmarks" / "accuracy"
sys.path.insert(0, str(ACCURACY))
import ablate  # noqa: E402  the benchmarks are scripts next to each other
import judge  # noqa: E402


def test_a_call_states_settings_seeds_and_encoding() -> None:
    given = argparse.Namespace(what="steps", seeds=None, threads=1, jobs=2, scratch=Path("scratch"))
    words = " ".join(ablate.command("flights", given)[1:])
    assert words.startswith("-m fielddep ablate flights --no-search --what steps --configs scratch/ablation-configs/")
    assert "--threads 1 --jobs 2" in words
    assert "--seeds" not in words
    assert words.endswith("--out scratch/ablation-flights --set data.evidence=auto --set data.crosses=auto")
    given.seeds = 2
    assert "--seeds 2" in " ".join(ablate.command("frappe", given))


@pytest.mark.parametrize("name", ablate.TABLES)
def test_settings_are_the_tuned_ones(name: str, tmp_path: Path) -> None:
    folder = ablate.settings_folder(name, tmp_path)
    assert (folder / "mdl.toml").read_text() == (ACCURACY / "configs" / f"mdl-{name}.toml").read_text()
    assert read_settings(folder / "mdl.toml", find_contender("mdl"), ("model", "train"))


CLAIMS = "dataset,what,claim,verdict,numbers\n{0},steps,it falls,{1},all\n{0},steps,it is near,{2},some\n"


def done(folder: Path, name: str, *verdicts: str) -> Path:
    """What an ablation leaves behind."""
    for file, text in {
        "steps.csv": f"dataset,what,value\n{name},steps,0.123456789012\n",
        "steps-claims.csv": CLAIMS.format(name, *verdicts),
        "steps.md": "table",
        "steps.png": "picture",
        "ablation.json": "{}",
        "runs/mdl-0.json": "{}",
        "configs/mdl.toml": "settings",
    }.items():
        (folder / name / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / file).write_text(text)
    return folder / name


def test_figures_and_verdicts_are_taken_over(tmp_path: Path) -> None:
    here = tmp_path / "here"
    ablate.gather("frappe", done(tmp_path, "frappe", "holds", "undecided"), here)
    ablate.gather("flights", done(tmp_path, "flights", "does not hold", "holds"), here)
    names = {"steps.csv", "steps-claims.csv", "steps.md", "steps.png", "mdl.toml"}
    assert {path.name for path in (here / "frappe").iterdir()} == names
    assert pl.read_csv(here / "frappe" / "steps.csv")["value"].item() == 0.1234568
    ablate.write_readme(here)
    lines = (here / "README.md").read_text().splitlines()
    assert lines[2:6] == [
        "| claim | frappe | flights |",
        "|---|---|---|",
        "| it falls | holds | does not hold |",
        "| it is near | undecided | holds |",
    ]
    assert "- frappe: [steps](frappe/steps.md)" in lines


def test_what_was_written_by_hand_stays(tmp_path: Path) -> None:
    here = tmp_path / "here"
    ablate.gather("frappe", done(tmp_path, "frappe", "holds", "undecided"), here)
    ablate.write_readme(here)
    page = here / "README.md"
    page.write_text(page.read_text() + "\nBecause the steps are small.\n")
    ablate.gather("flights", done(tmp_path, "flights", "does not hold", "holds"), here)
    ablate.write_readme(here)
    assert "| it falls | holds | does not hold |" in page.read_text()
    assert page.read_text().endswith(f"{ablate.MARK}\n\nBecause the steps are small.\n")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("ablation/frappe", judge.judge_ablation),
        ("ablation/ml-tag-part", judge.judge_ablation),
        ("ablation/ml-tag-part/batch-norm", judge.judge_runs),
        ("comparison/frappe", judge.judge_comparison),
    ],
)
def test_committed_verdicts_and_tests_are_those_of_the_committed_figures(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    committed = ACCURACY / name
    copy = Path(shutil.copytree(committed, tmp_path / "copy"))
    for path in copy.glob("*-claims.csv"):
        path.write_text("dataset,what,claim,verdict,numbers\n")
    for path in copy.glob("dunnett-*"):
        path.write_text("")
    make(copy)
    texts = [path for path in committed.iterdir() if path.suffix in (".csv", ".md", ".tex")]
    assert [path.name for path in texts if path.read_text() != (copy / path.name).read_text()] == []


def test_an_answer_without_claims_is_taken_over(tmp_path: Path) -> None:
    """The question of the parts has no claims, and may be asked of any table."""
    folder = done(tmp_path / "done", "frappe", "holds", "undecided")
    (folder / "parts-claims.csv").write_text("dataset,what,claim,verdict,numbers\n")
    (folder / "parts.md").write_text("table")
    ablate.gather("frappe", folder, tmp_path / "here")
    ablate.write_readme(tmp_path / "here")
    text = (tmp_path / "here" / "README.md").read_text()
    assert "| it falls | holds |" in text and "[parts](frappe/parts.md)" in text

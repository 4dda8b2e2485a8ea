"""An ablation from plan to files, with runs whose figures are made up: what is run, shared, kept, shown and judged."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import polars as pl
import pytest
from PIL import Image

from fielddep.errors import SplitError, UserError
from fielddep.experiments.ablation.ablate import Answer, ablate
from fielddep.experiments.ablation.tables import grids_of
from fielddep.experiments.ablation.trainings import AblationJob
from fielddep.observer import Observer
from fielddep.store.shards import StorePart
from fielddep.store.store import Store
from tests.experiments.ablation.ablations import fake_runs, paper_like, plan_of, small_store

ZETA_RUNS = [f"mdl-global-dep-zeta-{zeta}-0" for zeta in ("0.0001", "0.001", "0.01", "0.1", "1", "10")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return small_store(tmp_path_factory.mktemp("ablation") / "store")


@pytest.fixture(scope="module")
def whole(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], tuple[Answer, ...]]:
    """Everything, with two seeds, of a model of which all of the paper's claims are true."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as monkeypatch:
        names = fake_runs(monkeypatch, draws=True)
        return folder, names, ablate("shop", store, folder, plan_of())


def test_every_training_is_run_once_a_seed_and_zeta_first(whole: tuple[Path, list[str], tuple[Answer, ...]]) -> None:
    _, names, _ = whole
    assert names[:6] == ZETA_RUNS
    assert len(names) == len(set(names))
    lambdas = [f"sparsity-{value}" for value in ("0.316", "1", "3.16", "31.6", "100", "316")]
    others = [*lambdas, *(f"trained_steps-{t}" for t in (0, 1, 2, 6, 8)), "layers-2", "layers-4"]
    expected = ["mdl-wo-dep", "mdl", *others]
    assert names[6:] == [
        *(f"{name}-0" for name in expected),
        *(f"{name}-1" for name in ("mdl-wo-dep", "mdl-global-dep-zeta-0.1", "mdl", *others)),
    ]


def test_the_best_zeta_on_validation_rows_is_chosen(whole: tuple[Path, list[str], tuple[Answer, ...]]) -> None:
    folder, _, answers = whole
    variants, zetas = answers[0].sweeps
    assert (zetas.sweep.setting, zetas.sweep.control, zetas.n_seeds) == ("zeta", 0.1, 1)
    assert variants.sweep.points[1].training.config.model.global_penalty == 0.1
    text = (folder / "variants.md").read_text()
    assert "zeta = 0.1 " in text and "0.0001, 0.001, 0.01, 0.1, 1, 10" in text
    assert "| 0.1 (chosen) |" in text


def test_true_claims_hold(whole: tuple[Path, list[str], tuple[Answer, ...]]) -> None:
    _, _, answers = whole
    verdicts = {claim.text: claim.verdict for answer in answers for claim in answer.claims}
    assert verdicts == dict.fromkeys(
        [
            "w/o dep is worse than MDL (logloss, test rows)",
            "global dep is worse than MDL (logloss, test rows)",
            "global dep is worse than w/o dep (logloss, test rows)",
            "w/o dep is worse than MDL (AUC, test rows)",
            "global dep is worse than MDL (AUC, test rows)",
            "global dep is worse than w/o dep (AUC, test rows)",
            "small lambda gives sparse mu: the std of mu/lambda falls as lambda grows",
            "as lambda grows the training logloss falls, then levels off",
            "as lambda grows the validation logloss falls, then rises",
            "as lambda grows the test logloss falls, then rises",
            "the dependency loss falls with T",
            "the training logloss falls with T",
            "the validation logloss is best near the T of training (4)",
            "logloss and AUC are best at the same T",
            "4 steps are best to train with (logloss, validation rows)",
            "3 layers are best to train with (logloss, validation rows)",
        ],
        "holds",
    )


def false_everywhere(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
    """Figures that are the other way round."""
    figures = paper_like(job, n_steps, part)
    turned = {name: 1 - value for name, value in figures.items() if name in ("logloss", "auc")}
    turned["auc"] += 0.2 * (n_steps == 5)  # where the loss is not best
    return {**figures, **turned, **{n: 5 - v for n, v in figures.items() if n in ("dependency_loss", "mu_std")}}


def test_false_claims_do_not(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_runs(monkeypatch, false_everywhere)
    answers = ablate("shop", store, tmp_path / "out", plan_of())
    assert {claim.verdict for answer in answers for claim in answer.claims} == {"does not hold"}


def test_one_seed_decides_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_runs(monkeypatch)
    answers = ablate("shop", store, tmp_path / "out", plan_of(seeds=1))
    assert {claim.verdict for answer in answers for claim in answer.claims} == {"undecided"}


def test_figures_are_kept_one_a_row(whole: tuple[Path, list[str], tuple[Answer, ...]]) -> None:
    folder, _, _ = whole
    columns = ["dataset", "what", "setting", "setting_value", "seed", "split", "metric", "value"]
    frames = {name: pl.read_csv(folder / f"{name}.csv") for name in ("variants", "sparsity", "steps", "depth")}
    for name, frame in frames.items():
        assert frame.columns == columns
        assert frame["what"].unique().to_list() == [name]
        assert not frame.select(columns[:-1]).is_duplicated().any()
    assert frames["steps"]["setting"].unique().sort().to_list() == ["evaluated_steps", "trained_steps"]
    assert frames["variants"]["setting"].unique().sort().to_list() == ["variant", "zeta"]
    evaluated = frames["steps"].filter(setting="evaluated_steps", seed=1, split="test", metric="dependency_loss")
    assert dict(evaluated.select("setting_value", "value").iter_rows()) == pytest.approx(
        {t: 5 / (1 + t) for t in range(11)}
    )
    assert len(frames["steps"].filter(setting="evaluated_steps")) == 11 * 2 * 3 * 5
    tuned = frames["sparsity"].filter(setting_value=10.0, seed=0, split="train", metric="mu_std")
    assert tuned["value"].item() == pytest.approx(1 / 11)


def test_tables_show_mean_and_spread_of_every_part(whole: tuple[Path, list[str], tuple[Answer, ...]]) -> None:
    folder, _, answers = whole
    (grid,) = grids_of(answers[3].sweeps[0])
    assert grid.header == (
        "layers", "train logloss", "train AUC", "validation logloss", "validation AUC", "test logloss", "test AUC"
    )  # fmt: skip
    texts = [[cell.text for cell in row[:2]] for row in grid.rows]
    assert texts == [["2", "0.33059 ± 0.00071"], ["3 (paper)", "0.30059 ± 0.00071"], ["4", "0.33059 ± 0.00071"]]
    assert [row[1].bold for row in grid.rows] == [False, True, False]
    (short,) = grids_of(answers[3].sweeps[0], ("test",))
    assert short.header == ("layers", "test logloss", "test AUC")
    assert re.search(r"100 wide.* has 3\.", (folder / "depth.md").read_text())
    assert "std of mu/lambda" in (folder / "sparsity.md").read_text()
    assert "0.471 where one of the 3 " in (folder / "sparsity.md").read_text()


def test_variants_have_the_tables_and_tests_of_a_comparison(
    whole: tuple[Path, list[str], tuple[Answer, ...]],
) -> None:
    _, _, answers = whole
    table, logloss, auc = grids_of(answers[0].sweeps[0])
    assert [row[0].text for row in table.rows] == ["mdl-wo-dep", "mdl-global-dep", "mdl"]
    assert [row[1].star for row in table.rows] == [True, True, False]
    for metric, grid in {"logloss": logloss, "AUC": auc}.items():
        assert all(fact in grid.caption for fact in ("Dunnett", metric, "shop"))


def test_all_files_are_there_and_pictures_can_be_opened(whole: tuple[Path, list[str], tuple[Answer, ...]]) -> None:
    folder, _, _ = whole
    pictures = {"variants.png", "sparsity.png", "steps.png", "steps-trained.png", "depth.png"}
    tables = {f"{what}{end}" for what in ("variants", "sparsity", "steps", "depth") for end in (".md", ".tex", ".csv")}
    claims = {f"{what}-claims.csv" for what in ("variants", "sparsity", "steps", "depth")}
    folders = {"runs", "configs", "ablation.json"}
    assert {path.name for path in folder.iterdir()} == pictures | tables | claims | folders
    for name in pictures:
        with Image.open(folder / name) as image:
            assert image.width > 600
            assert len(image.convert("RGB").getcolors(1 << 24) or []) > 20
        assert f"![{name}]({name})" in "".join(path.read_text() for path in folder.glob("*.md"))


def test_claims_are_kept_for_machines_too(whole: tuple[Path, list[str], tuple[Answer, ...]]) -> None:
    folder, _, answers = whole
    frame = pl.read_csv(folder / "steps-claims.csv")
    assert frame.columns == ["dataset", "what", "claim", "verdict", "numbers"]
    assert frame["claim"].to_list() == [claim.text for claim in answers[2].claims]
    assert "- **holds**: the dependency loss falls with T" in (folder / "steps.md").read_text()


def test_a_second_call_runs_what_is_missing_only(
    whole: tuple[Path, list[str], tuple[Answer, ...]], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, answers = whole
    names = fake_runs(monkeypatch)
    (folder / "runs" / "layers-4-1.json").unlink()
    again = ablate("shop", store, folder, plan_of())
    assert names == ["layers-4-1"]
    assert [answer.claims for answer in again] == [answer.claims for answer in answers]
    names.clear()
    ablate("shop", store, folder, plan_of("depth", seeds=3))
    assert names == ["layers-2-2", "mdl-2", "layers-4-2"]


class _Plans(Observer):
    def __init__(self) -> None:
        self.plans: list[tuple[str, int, int]] = []

    def on_plan(self, what: str, n_todo: int, n_done: int) -> None:
        self.plans.append((what, n_todo, n_done))


def test_a_question_uses_the_runs_of_another(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, told = fake_runs(monkeypatch), _Plans()
    ablate("shop", store, tmp_path / "out", plan_of("sparsity"))
    assert "mdl-0" in names
    ablate("shop", store, tmp_path / "out", plan_of("steps"), observer=told)
    assert told.plans == [("runs", 10, 2)]


def failing(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
    if job.contender == "layers-4" or (job.contender, job.seed) == ("mdl", 1):
        raise RuntimeError("the loss is not finite")
    return paper_like(job, n_steps, part)


def test_a_run_that_fails_is_recorded_and_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_runs(monkeypatch, failing)
    (answer,) = ablate("shop", store, tmp_path / "out", plan_of("depth"))
    (result,) = answer.sweeps
    assert result.values(3, "test", "auc").keys() == {0}
    for note, facts in zip(result.failures, (("mdl", "1 of 2"), ("layers-4", "2 of 2")), strict=True):
        assert all(fact in note for fact in (*facts, "the loss is not finite"))
    text = (tmp_path / "out" / "depth.md").read_text()
    assert "layers-4: 2 of 2" in text
    assert "| 4 | - |" in text
    assert answer.claims[0].verdict == "undecided"
    names = fake_runs(monkeypatch)
    ablate("shop", store, tmp_path / "out", plan_of("depth", keep_failed=True))
    assert names == []
    ablate("shop", store, tmp_path / "out", plan_of("depth"))
    assert names == ["layers-4-0", "mdl-1", "layers-4-1"]


def all_fail(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
    raise RuntimeError("no memory")


def test_when_everything_fails_the_reasons_are_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_runs(monkeypatch, all_fail, draws=True)
    answers = ablate("shop", store, tmp_path / "out", plan_of())
    assert not any(result.metrics for answer in answers for result in answer.sweeps)
    assert "no memory" in (tmp_path / "out" / "variants.md").read_text()
    assert not list((tmp_path / "out").glob("*.png"))


def diverging(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
    """Beyond six steps nothing is a number."""
    figures = paper_like(job, n_steps, part)
    return dict.fromkeys(figures, float("nan")) if n_steps > 6 else figures


def test_figures_that_are_no_numbers_are_left_out(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_runs(monkeypatch, diverging, draws=True)
    (answer,) = ablate("shop", store, tmp_path / "out", plan_of("steps", trained_steps=(4, 6)))
    falls, _, near, *_ = answer.claims
    assert (falls.verdict, near.verdict) == ("does not hold", "holds")
    assert "from 6 to 7" in falls.reason
    assert "| 7 | - |" in (tmp_path / "out" / "steps.md").read_text()
    assert (tmp_path / "out" / "steps.png").exists()


def regression(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
    figures = paper_like(job, n_steps, part)
    renamed = {"mse": figures.pop("logloss"), "mae": 1 - figures.pop("auc")}
    return {**renamed, **{name: value for name, value in figures.items() if name != "calibration_error"}}


def test_regression_has_its_own_metrics(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_runs(monkeypatch, regression)
    variants, depth = ablate("shop", store, tmp_path / "out", plan_of("variants,depth"))
    assert variants.sweeps[0].metrics == ("mse", "mae")
    assert {claim.verdict for claim in (*variants.claims, *depth.claims)} == {"holds"}
    assert variants.claims[-1].text == "global dep is worse than w/o dep (MAE, test rows)"


def test_tuned_settings_are_where_it_starts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_runs(monkeypatch)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mdl.toml").write_text("[model]\nsparsity = 2.0\n[train]\nmax_epochs = 3\n")
    (answer,) = ablate("shop", store, tmp_path / "out", plan_of("sparsity", configs=tmp_path / "configs"))
    assert answer.sweeps[0].sweep.control == 2.0
    saved = json.loads((tmp_path / "out" / "runs" / "sparsity-20-0.json").read_text())
    assert saved["made_from"]["config"] == {"model": {"name": "mdl", "sparsity": 20.0}, "train": {"max_epochs": 3}}
    assert saved["result"]["settings"] == "tuned"
    text = (tmp_path / "out" / "configs" / "sparsity-20.toml").read_text()
    assert "sparsity = 20.0" in text


def test_a_sample_of_the_training_rows_is_told_of(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_runs(monkeypatch)
    ablate("shop", store, tmp_path / "out", plan_of("depth", train_rows=100))
    n_rows = store.n_rows_of["train"]
    text = (tmp_path / "out" / "depth.md").read_text()
    assert f"sample of 100 of {n_rows} rows" in text


def test_folders_and_stores_of_other_things_are_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_runs(monkeypatch)
    ablate("shop", store, tmp_path / "out", plan_of("depth", seeds=1))
    with pytest.raises(UserError, match=r"out .*ablation.*other"):
        ablate("other", store, tmp_path / "out", plan_of("depth", seeds=1))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(UserError, match=r"letters .*ablation"):
        ablate("shop", store, tmp_path / "letters", plan_of("depth"))
    without = dataclasses.replace(store, shards=StorePart.of(store.part("train").rows()).shards)
    with pytest.raises(SplitError, match="test rows"):
        ablate("shop", without, tmp_path / "none", plan_of("depth"))

"""Everything at once, as numbers and as files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.errors import UserError
from fielddep.explain.curves import learning_curve
from fielddep.explain.dependencies import explain_rows, global_dependencies, table_dependencies
from fielddep.explain.groups import group_rows
from fielddep.explain.hiding import REFINEMENT, hide_fields, without_refinement
from fielddep.explain.importance import hiding_importance, permutation_importance
from fielddep.explain.neighbours import nearest_values
from fielddep.explain.overview import OverviewFolder, overview_rows, overview_table
from fielddep.training.checkpoint import Evaluation
from tests.explain.trained import MIXED_FIELDS, mixed, mixed_rows

NUMBERS = (40, 7)
MODEL_FILES = {"dependencies.csv", "strongest_sources.csv", "dependencies.png", "learning.csv", "learning.png"}
ROW_FILES = {"effects.csv", "rows.csv", "rows.json", "rows.png"} | {
    f"row-{number}-{what}.png" for number in NUMBERS for what in ("effects", "steps", "weights")
}
TARGET_FILES = {
    f"{name}.{suffix}" for name in ("importance", "hiding", "calibration", "scores") for suffix in ("csv", "png")
}
GROUP_FILES = {"table_dependencies.csv", "groups.csv", "group_dependencies.csv", "group_values.csv", "groups.png"}


def chosen(bundle):
    return overview_rows(bundle, mixed_rows(bundle).take(np.array(NUMBERS)), NUMBERS)


def write(bundle, folder: Path, rows, **options) -> set[str]:
    out = OverviewFolder(folder)
    dependencies = global_dependencies(bundle) if chosen(bundle).explanation else None
    step = Evaluation(
        step=1, epoch=1.0, lr=0.1, train_loss=0.5, validation={"logloss": 0.5, "loss": 0.5}, best=True, seconds=1.0
    )
    out.write_model(dependencies, learning_curve([step]))
    out.write_rows(chosen(bundle), dependencies)
    out.write_table(overview_table(bundle, rows, n_repeats=1, **options))
    assert sorted(out.written) == sorted(path.name for path in folder.iterdir())
    return set(out.written)


def test_rows_overview_is_the_sum_of_its_parts():
    bundle, found = mixed(), chosen(mixed())
    rows = mixed_rows(bundle).take(np.array(NUMBERS))
    assert found.numbers == NUMBERS
    assert found.effects.to_frame().equals(hide_fields(bundle, rows).to_frame())
    assert found.refinement.to_frame().equals(without_refinement(bundle, rows).to_frame())
    assert found.explanation.to_frame().equals(explain_rows(bundle, rows).to_frame())
    frame = found.effects_frame()
    assert frame["row"].to_list() == [number for number in sorted(NUMBERS) for _ in range(6)]
    first = frame.filter(pl.col("row") == 40)
    assert first["hidden"].to_list() == [*MIXED_FIELDS, REFINEMENT]
    assert first["effect"].to_list() == [*found.effects.effect_RF[0], found.refinement.effect_RF[0, 0]]


def test_table_overview_is_the_sum_of_its_parts():
    bundle, rows = mixed(), mixed_rows(mixed())
    found = overview_table(bundle, rows, n_groups=3, n_repeats=2, seed=4)
    assert found.n_rows == 120
    assert found.dependencies.to_frame().equals(table_dependencies(bundle, rows).to_frame())
    assert found.groups.to_frame().equals(group_rows(bundle, rows, n_groups=3, seed=4).to_frame())
    assert found.importance.to_frame().equals(permutation_importance(bundle, rows, n_repeats=2, seed=4).to_frame())
    assert found.hiding.to_frame().equals(hiding_importance(bundle, rows).to_frame())
    assert found.calibration is not None and found.scores is not None


def test_what_the_model_or_the_rows_do_not_allow_is_left_out():
    fm = mixed(model="fm")
    rows = chosen(fm)
    assert rows.explanation is None and rows.refinement is None and len(rows.effects) == 2
    table = overview_table(fm, mixed_rows(fm), n_repeats=1)
    assert table.dependencies is None and table.groups is None
    assert table.importance is not None and table.hiding is not None
    blind = overview_table(mixed(), mixed_rows(mixed(), with_target=False), n_groups=0)
    assert blind.dependencies is not None and blind.groups is None
    assert (blind.importance, blind.hiding, blind.calibration, blind.scores) == (None, None, None, None)
    number = overview_table(mixed("cost"), mixed_rows(mixed("cost")), n_groups=0, n_repeats=1)
    assert number.scores is None and number.calibration is not None
    nothing = mixed_rows(mixed()).take(slice(0))
    assert overview_table(mixed(), nothing).dependencies is None


def test_too_many_rows_to_explain_one_by_one():
    rows = mixed_rows(mixed()).take(np.zeros(1001, dtype=np.int64))
    with pytest.raises(UserError, match=r"1,000 rows.*1,001"):
        overview_rows(mixed(), rows, range(1001))


def test_all_files_of_a_model_with_dependencies(tmp_path: Path):
    pytest.importorskip("matplotlib")
    written = write(mixed(), tmp_path / "out", mixed_rows(mixed()))
    assert written == MODEL_FILES | ROW_FILES | GROUP_FILES | TARGET_FILES
    assert all((tmp_path / "out" / name).read_bytes()[:4] == b"\x89PNG" for name in written if name.endswith("png"))
    found = chosen(mixed())
    effects = pl.read_csv(tmp_path / "out" / "effects.csv", schema_overrides={"class": pl.String})
    assert effects["effect"].to_list() == pytest.approx(found.effects_frame()["effect"].to_list())
    path = pl.read_csv(tmp_path / "out" / "rows.csv")
    assert path["row"].unique(maintain_order=True).to_list() == list(NUMBERS)
    assert path["w"].to_list() == pytest.approx(found.explanation.to_frame()["w"].to_list())
    numbers = json.loads((tmp_path / "out" / "rows.json").read_text())
    assert numbers["rows"] == list(NUMBERS)
    assert numbers["mu"] == found.explanation.mu_RSF.tolist()


def test_files_of_other_models_and_of_rows_without_target(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    numbers_only = {name for name in ROW_FILES | TARGET_FILES if name.endswith("csv")} - {"rows.csv"}
    assert write(mixed(model="fm"), tmp_path / "fm", mixed_rows(mixed(model="fm"))) == {"learning.csv"} | numbers_only
    blind = write(mixed(), tmp_path / "mdl", mixed_rows(mixed(), with_target=False), n_groups=0)
    assert blind == {
        *("dependencies.csv", "strongest_sources.csv", "learning.csv"),
        *("effects.csv", "rows.csv", "rows.json", "table_dependencies.csv"),
    }
    assert not OverviewFolder(tmp_path).draws


def test_many_rows_are_drawn_up_to_a_limit(tmp_path: Path, monkeypatch):
    drawn: list[tuple[str, tuple[int, ...]]] = []
    for name in ("draw_effects", "draw_steps", "draw_weights"):
        monkeypatch.setattr(f"fielddep.explain.overview.{name}", lambda *_, **__: None)
    monkeypatch.setattr(
        "fielddep.explain.overview.draw_rows",
        lambda model, explanation, path, rows, numbers: drawn.append((path.name, numbers)),
    )
    bundle = mixed()
    out = OverviewFolder(tmp_path)
    out.draws = True
    numbers = tuple(range(10, 30))
    out.write_rows(overview_rows(bundle, mixed_rows(bundle, 20), numbers), global_dependencies(bundle))
    assert drawn == [
        ("rows.png", (10, 11, 12)),
        ("rows-2.png", (13, 14, 15)),
        ("rows-3.png", (16, 17, 18)),
        ("rows-4.png", (19, 20, 21)),
    ]
    assert "row-21-steps.png" in out.written and "row-22-steps.png" not in out.written
    assert pl.read_csv(tmp_path / "rows.csv")["row"].n_unique() == 20


def test_nearest_values_in_one_table(tmp_path: Path):
    out = OverviewFolder(tmp_path)
    out.write_nearest([nearest_values(mixed(), "colour", "red"), nearest_values(mixed(), "shape", "disc", n=1)])
    frame = pl.read_csv(tmp_path / "nearest.csv")
    assert frame.columns == ["field", "value", "near", "similarity", "count"]
    assert frame["field"].to_list() == ["colour", "colour", "shape"]
    assert frame["value"].to_list() == ["red", "red", "disc"]
    assert frame["near"].to_list() == [*nearest_values(mixed(), "colour", "red").values, frame["near"][2]]


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file"):
        OverviewFolder(tmp_path / "file").write_model(global_dependencies(mixed()), None)

"""Pictures: what they show, that labels do not overlap, and that files are complete or absent."""

from __future__ import annotations

import re
import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fielddep.errors import MissingExtraError, UserError
from fielddep.explain import heat_maps, plots
from fielddep.explain.curves import CalibrationCurve, ScoreDistribution, learning_curve
from fielddep.explain.dependencies import Explanation, FieldDependencies
from fielddep.explain.groups import RowGroup, RowGroups
from fielddep.explain.hiding import Effects
from fielddep.explain.importance import FieldImportance
from fielddep.explain.plots import Canvas, named_value, short, spread
from fielddep.training.checkpoint import Evaluation

MODEL = FieldDependencies(
    fields=("user", "a very long field name indeed", "item"), matrix_FF=np.arange(9.0).reshape(3, 3)
)


def explanation(n_fields: int, n_rows: int = 2, n_steps: int = 3) -> Explanation:
    rng = np.random.default_rng(0)
    names = tuple(f"a_long_name_of_field_number_{f}" for f in range(n_fields))
    values = pl.DataFrame(
        {name: [f"value number {f} of row {r}" for r in range(n_rows)] for f, name in enumerate(names)}
    )
    mu = rng.random((n_rows, n_steps, n_fields))
    return Explanation(
        fields=names,
        values=values,
        w_RSFF=rng.normal(size=(n_rows, n_steps, n_fields, n_fields)),
        mu_RSF=3 * mu / mu.sum(axis=2, keepdims=True),
        loss_RSF=rng.random((n_rows, n_steps, n_fields)),
        sparsity=3.0,
    )


def importance(n_fields: int) -> FieldImportance:
    worse = {"logloss": np.linspace(0.2, -0.01, n_fields)[::-1, None] + [[0.0, 0.01]], "auc": np.ones((n_fields, 2))}
    return FieldImportance(
        method="permutation",
        names=tuple(f"field {f}" for f in range(n_fields)),
        n_rows=1000,
        base={"logloss": 0.5, "auc": 0.8},
        worse_FP=worse,
    )


def effects(n_fields: int, classes: tuple[object, ...] = ("yes", "yes")) -> Effects:
    names = tuple(f"field {f}" for f in range(n_fields))
    without = np.linspace(0.1, 0.9, 2 * n_fields).reshape(2, n_fields)
    return Effects(
        names=names,
        values=pl.DataFrame({name: ["$x_{$", "b"] for name in names}),
        classes=classes,
        prediction_R=np.array([0.4, 0.5]),
        without_RF=without,
        logit_R=None,
        logit_without_RF=None,
    )


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> list[Canvas]:
    """All canvases drawn in a test, complete."""
    pytest.importorskip("matplotlib")
    drawn: list[Canvas] = []
    leave = Canvas.__exit__

    def keep(self: Canvas, *error: Any) -> None:
        leave(self, *error)
        drawn.append(self)

    monkeypatch.setattr(Canvas, "__exit__", keep)
    return drawn


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def labels_of(rows: Explanation, row: int) -> list[str]:
    return [named_value(name, f"value number {f} of row {row}") for f, name in enumerate(rows.fields)]


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def assert_apart(labels: list[Any]) -> None:
    """No two of these texts touch."""
    labels[0].figure.canvas.draw()  # saving leaves texts where they stood in the file's own resolution
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    for position, box in enumerate(boxes):
        touched = [other for other in boxes[position + 1 :] if box.overlaps(other)]
        assert not touched, labels[position]


# --- heat maps ------------------------------------------------------------------------------------------------


def test_the_model_next_to_rows_with_their_values(pictures, tmp_path: Path):
    rows = explanation(4)
    model = FieldDependencies(fields=rows.fields, matrix_FF=rows.w_RSFF[0, 0])
    heat_maps.draw_rows(model, rows, tmp_path / "rows.png", rows=[0, 1], numbers=[7, 12])
    axes = pictures[0].axes.ravel()
    titles = [axis.get_title(loc="left") for axis in axes]
    assert all(fact in title for fact, title in zip(("W(0)", "row 7", "row 12"), titles, strict=True))
    for axis, found in zip(axes, [model, rows.refined(0), rows.refined(1)], strict=True):
        shown, values = axis.images[0].get_array(), found.matrix_FF * (1 - np.eye(4))
        np.testing.assert_array_equal(shown.filled(0.0), values)
        assert shown.mask.tolist() == np.eye(4, dtype=bool).tolist()
        assert axis.images[0].get_clim() == (-np.abs(values).max(), np.abs(values).max())
        assert f"{np.abs(values).max():.2g}" in axis.get_title(loc="left")
    assert "largest = 1" in pictures[0].figure.axes[-1].get_ylabel()  # every map has its own scale
    for axis, labels in zip(
        axes, ([short(name) for name in rows.fields], labels_of(rows, 0), labels_of(rows, 1)), strict=True
    ):
        assert texts(axis.get_xticklabels()) == labels
        assert texts(axis.get_yticklabels()) == labels


@pytest.mark.parametrize("n_fields", [2, 5, 40])
def test_labels_of_heat_maps_do_not_overlap(pictures, tmp_path: Path, n_fields):
    rows = explanation(n_fields, n_rows=3)
    model = FieldDependencies(fields=rows.fields, matrix_FF=rows.w_RSFF[0, 0])
    heat_maps.draw_rows(model, rows, tmp_path / "rows.png", rows=[0, 1, 2], numbers=[0, 1, 2])
    axes = pictures[0].axes.ravel()
    every = [text for axis in axes for text in (*axis.get_xticklabels(), *axis.get_yticklabels())]
    assert_apart([*every, *(axis._left_title for axis in axes), *(axis.xaxis.label for axis in axes)])


def test_steps_and_what_they_changed(pictures, tmp_path: Path):
    rows = explanation(3)
    heat_maps.draw_steps(rows, tmp_path / "steps.png", row=1, number=9)
    axes = [axis for axis in pictures[0].axes.ravel() if axis.images]
    losses = rows.loss_RSF[1].sum(axis=1)
    titles = [axis.get_title(loc="left") for axis in axes]
    assert all(f"W({t})" in titles[t] and f"{losses[t]:.4g}" in titles[t] for t in range(3))
    assert titles[3:] == ["W(1) - W(0)", "W(2) - W(0)"]
    off = 1 - np.eye(3)
    w = rows.w_RSFF[1] * off
    change = w[1:] - w[0]
    for axis, values, scaled in zip(axes, [*w, *change], [w] * 3 + [change] * 2, strict=True):
        np.testing.assert_allclose(axis.images[0].get_array().filled(0.0), values, atol=1e-12)
        assert axis.images[0].get_clim()[1] == pytest.approx(np.abs(scaled).max())
    assert "Row 9" in pictures[0].figure._suptitle.get_text()
    lines = [texts(axis.get_yticklabels()) for axis in axes]
    assert lines == [labels_of(rows, 1), [""] * 3, [""] * 3, labels_of(rows, 1), [""] * 3]


def test_a_path_without_steps(pictures, tmp_path: Path):
    heat_maps.draw_steps(explanation(3, n_steps=1), tmp_path / "steps.png", row=0, number=0)
    assert [axis.get_title(loc="left")[:4] for axis in pictures[0].axes.ravel()] == ["W(0)"]
    plots.draw_weights(explanation(3, n_steps=1), tmp_path / "mu.png", row=0, number=0)
    assert min(png_size(tmp_path / "mu.png")) > 100


def test_groups_and_what_sets_them_apart(pictures, tmp_path: Path):
    mean = np.array([[0.0, 0.4], [0.2, 0.0]])
    contrasts = [np.array([[0.0, 0.1], [0.0, 0.0]]), np.array([[0.0, -0.2], [0.05, 0.0]])]
    groups = tuple(
        RowGroup(
            n_rows=n_rows,
            share=n_rows / 100,
            pattern=FieldDependencies(fields=("a", "b"), matrix_FF=mean + contrast),
            contrast=FieldDependencies(fields=("a", "b"), matrix_FF=contrast),
            values=(),
            prediction={"prediction": 1.0},
            target=None,
        )
        for n_rows, contrast in zip((60, 40), contrasts, strict=True)
    )
    heat_maps.draw_groups(RowGroups(groups=groups, group_R=np.zeros(100, dtype=np.int64)), tmp_path / "groups.png")
    axes = pictures[0].axes.ravel()
    titles = [axis.get_title(loc="left") for axis in axes[1:]]
    assert all(re.search(rf"{g}\b.*{n} rows.*{n} ?%", titles[g]) for g, n in enumerate((60, 40)))
    np.testing.assert_allclose(axes[0].images[0].get_array().filled(0), mean)
    for axis, contrast in zip(axes[1:], contrasts, strict=True):
        np.testing.assert_allclose(axis.images[0].get_array().filled(0), contrast)
    assert [axis.images[0].get_clim()[1] for axis in axes] == pytest.approx([0.4, 0.2, 0.2])
    assert re.search(r"\b50(\.0+)? ?%", pictures[0].figure._suptitle.get_text())


def test_numbers_stand_in_the_cells_of_small_maps_only(pictures, tmp_path: Path):
    small = FieldDependencies(fields=("a", "b"), matrix_FF=np.array([[-1.0, 0.5], [-0.25, -1.0]]))
    heat_maps.draw_dependencies(small, tmp_path / "small.png")
    assert texts(pictures[0].axes[0][0].texts) == ["+0.5", "-0.25"]
    bar = pictures[0].figure.axes[-1]
    assert bar.get_ylim() == (-0.5, 0.5) and "= 1" not in bar.get_ylabel()
    large = FieldDependencies(fields=tuple("abcdefghij"), matrix_FF=np.eye(10))
    heat_maps.draw_dependencies(large, tmp_path / "large.png")
    assert not pictures[1].axes[0][0].texts


# --- bars -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_fields", [3, 40, 55])
def test_importance_bars(pictures, tmp_path: Path, n_fields):
    found = importance(n_fields)
    plots.draw_importance(found, tmp_path / "bars.png")
    left, right = pictures[0].axes[0]
    shown = found.ranked()[:40]
    assert texts(left.get_yticklabels()) == shown
    assert_apart(left.get_yticklabels())
    positions = [found.names.index(name) for name in shown]
    np.testing.assert_allclose([bar.get_width() for bar in left.patches], found.mean_F("logloss")[positions])
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], found.mean_F("auc")[positions])
    assert re.search(r"\b(rise|increase)\b.*logloss.*0\.5", left.get_xlabel())
    assert re.search(r"\b(fall|drop|decrease)\b.*AUC.*0\.8", right.get_xlabel())
    assert (" 15 " in pictures[0].figure._suptitle.get_text()) == (n_fields == 55)


def test_effects_of_a_row(pictures, tmp_path: Path):
    plots.draw_effects(effects(4), tmp_path / "effects.png", row=1, number=12)
    axis = pictures[0].axes[0][0]
    effect = effects(4).effect_RF[1]
    order = np.argsort(-np.abs(effect))
    np.testing.assert_allclose([bar.get_width() for bar in axis.patches], effect[order])
    assert texts(axis.get_yticklabels()) == [f"field {f}: b" for f in order]
    assert re.search(r"Row 12\b.*\byes\b.*0\.5$", pictures[0].figure._suptitle.get_text())
    plots.draw_effects(effects(4, classes=()), tmp_path / "effects.png", row=0, number=0)
    assert re.search(r"Row 0\b.*0\.4$", pictures[1].figure._suptitle.get_text())
    assert texts(pictures[1].axes[0][0].get_yticklabels())[0].endswith(r": \$x_{\$")


# --- lines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_fields", [2, 10, 40])
def test_weights_over_the_steps(pictures, tmp_path: Path, n_fields):
    rows = explanation(n_fields)
    plots.draw_weights(rows, tmp_path / "mu.png", row=1, number=5)
    axis = pictures[0].axes[0][0]
    share = rows.mu_RSF[1] / 3.0
    drawn = sorted(line.get_ydata().tolist() for line in axis.lines if len(line.get_ydata()) == 3)
    assert drawn == sorted(share.T.tolist())
    assert len(axis.texts) == min(n_fields, 10)
    assert_apart(axis.texts)
    moved = set(np.argsort(-np.abs(share[-1] - share[0]))[:10].tolist())
    names = {" " + named_value(rows.fields[f], f"value number {f} of row 1") for f in moved}
    assert set(texts(axis.texts)) == names
    title = axis.get_title(loc="left")
    assert "dashed" in title and ("30 " in title) == (n_fields == 40)
    assert axis.lines[0].get_ydata()[0] == pytest.approx(1 / n_fields)


def evaluations(names: tuple[str, ...]) -> list[Evaluation]:
    return [
        Evaluation(
            step=s,
            epoch=s / 2,
            lr=0.1,
            train_loss=1 / s,
            validation={**dict.fromkeys(names, 0.5 + 0.1 * abs(s - 3)), "loss": 0.5},
            best=s == 3,
            seconds=1.0,
        )
        for s in range(1, 5)
    ]


def test_learning_curves(pictures, tmp_path: Path):
    plots.draw_learning(learning_curve(evaluations(("auc", "calibration_error", "logloss"))), tmp_path / "learning.png")
    loss, area = pictures[0].axes[0]
    assert (loss.get_title(loc="left"), area.get_title(loc="left")) == ("logloss", "AUC")
    *lines, kept = texts(loss.get_legend().texts)
    assert lines == ["training", "validation"] and kept.endswith("0.5000")
    *lines, kept = texts(area.get_legend().texts)
    assert lines == ["validation"] and kept.endswith("0.5000")
    assert loss.lines[0].get_ydata().tolist() == [1, 1 / 2, 1 / 3, 1 / 4]
    assert loss.lines[2].get_xdata().tolist() == [1.5]
    plots.draw_learning(learning_curve(evaluations(("mae", "mse"))), tmp_path / "learning.png")
    titles = [axis.get_title(loc="left") for axis in pictures[1].axes[0]]
    assert re.search("squared|MSE", titles[0]) and re.search("absolute|MAE", titles[1])


def test_calibration(pictures, tmp_path: Path):
    curve = CalibrationCurve(
        task="multiclass",
        predicted_N=np.array([0.1, 0.5]),
        observed_N=np.array([0.2, 0.4]),
        low_N=np.array([0.15, 0.3]),
        high_N=np.array([0.3, 0.5]),
        weight_N=np.array([10.0, 10.0]),
    )
    plots.draw_calibration(curve, tmp_path / "calibration.png")
    axis = pictures[0].axes[0][0]
    assert axis.get_title(loc="left").endswith(" 0.1")
    assert "probability" in axis.get_xlabel() and "class" in axis.get_xlabel()
    assert axis.lines[1].get_xydata().tolist() == [[0.1, 0.2], [0.5, 0.4]]


@pytest.mark.parametrize("n_classes", [2, 3, 14])
def test_scores_by_class(pictures, tmp_path: Path, n_classes):
    weights = np.arange(1.0, n_classes + 1)[:, None] * np.ones((1, 4))
    scores = ScoreDistribution(
        classes=tuple(f"class {c}" for c in range(n_classes)), edges=np.linspace(0, 1, 5), weight_CN=weights
    )
    plots.draw_scores(scores, tmp_path / "scores.png")
    axis = pictures[0].axes[0][0]
    shown = range(max(0, n_classes - 10), n_classes)
    assert texts(axis.get_legend().texts) == [f"class {c} ({4 * (c + 1)} rows)" for c in shown]
    assert ("class 1" in axis.get_xlabel()) == (n_classes == 2)
    assert ("4 smaller" in pictures[0].figure._suptitle.get_text()) == (n_classes == 14)


# --- labels and files -----------------------------------------------------------------------------------------


def test_long_labels_lose_their_middle():
    assert short("short") == "short"
    assert short("a" * 20 + "b" * 20) == "a" * 13 + "…" + "b" * 12
    assert short("two\nlines  here") == "two lines here"
    assert short("$5") == r"\$5"
    assert named_value("colour", "red") == "colour: red"
    assert len(named_value("n" * 50, "v" * 50)) == plots.MAX_LABEL
    assert named_value("n" * 50, "red") == "n" * 10 + "…" + "n" * 10 + ": red"
    assert named_value("hour", "v" * 50) == "hour: " + "v" * 10 + "…" + "v" * 9


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_suffix_says_the_format(tmp_path: Path, suffix, start):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"map.{suffix}"
    heat_maps.draw_dependencies(MODEL, path)
    assert path.read_bytes().startswith(start)


def test_strange_texts_are_drawn_as_they_are(tmp_path: Path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "row.png"
    odd = FieldDependencies(fields=("$\\frac{$", "b$"), matrix_FF=-np.eye(2))
    heat_maps.draw_dependencies(odd, path)
    assert min(png_size(path)) > 100
    titled = heat_maps.HeatMap(title="$100 $ and _{$", values_FF=-np.eye(2), labels=("a", "b"), largest=0.0)
    heat_maps.draw_heat_maps([titled], path)
    assert min(png_size(path)) > 100


def test_pictures_are_white_and_leave_the_users_style_alone(pictures, tmp_path: Path):
    import matplotlib

    with matplotlib.rc_context({"figure.facecolor": "black", "savefig.facecolor": "black", "font.size": 30}):
        heat_maps.draw_dependencies(MODEL, tmp_path / "map.png")
        assert matplotlib.rcParams["font.size"] == 30
    assert pictures[0].figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert "matplotlib.pyplot" not in sys.modules


def test_an_unknown_format_is_a_users_error(tmp_path: Path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match=r"map\.xyz.*\bpng\b"):
        heat_maps.draw_dependencies(MODEL, tmp_path / "map.xyz")
    assert list(tmp_path.iterdir()) == []


def test_a_drawing_that_fails_leaves_no_file(tmp_path: Path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ZeroDivisionError), Canvas(tmp_path / "x.png", width=2, height=2):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fielddep\[plot\]'"):
        heat_maps.draw_dependencies(MODEL, tmp_path / "map.png")
    assert list(tmp_path.iterdir()) == []


# --- labels that would overlap are moved apart ----------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [[5.0], [0.0, 0.0, 0.0], [9.9, 10.0, 10.0], [1.0, 1.1, 5.0, 9.0], [0.1 * n for n in range(11)]]
)
def test_places_are_apart_and_within(values: list[float]) -> None:
    places = spread(values, 0.0, 10.0, 1.0)
    assert all(after - before >= 1 - 1e-9 for before, after in pairwise(places))
    assert places[0] >= 0 and places[-1] <= 10


def test_values_that_are_apart_stay_in_their_places() -> None:
    assert spread([1.0, 4.0, 8.5], 0.0, 10.0, 1.0) == [1.0, 4.0, 8.5]

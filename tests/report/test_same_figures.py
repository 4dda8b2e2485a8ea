"""The pictures of `explain` and the figures of the page show the same numbers in the same colours and scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.encoding.target import Target
from fielddep.explain import heat_maps, plots
from fielddep.explain.curves import ScoredRows, calibration_curve, learning_curve, score_distribution
from fielddep.explain.dependencies import Explanation, FieldDependencies
from fielddep.explain.hiding import Effects
from fielddep.explain.plots import LIGHT, Canvas
from fielddep.report.figures import calibration_figure, heat_figure, learning_figure, scores_figure, weights_figure
from fielddep.report.markup import effect_bar
from fielddep.report.measured import _calibration, _histogram
from fielddep.training.checkpoint import Evaluation

RNG = np.random.default_rng(0)
TARGET = Target(name="y", task="binary", classes=("no", "yes"))
LOGIT_R = RNG.normal(-2, 1, 900)
SCORED = ScoredRows(
    target=TARGET,
    logits_RC=torch.from_numpy(LOGIT_R).float().unsqueeze(1),
    target_R=(RNG.random(900) < 1 / (1 + np.exp(-LOGIT_R))).astype(np.float32),
)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes of every picture that a test draws."""
    pytest.importorskip("matplotlib")
    found: list[Any] = []
    leave = Canvas.__exit__

    def keep(self: Canvas, *error: Any) -> None:
        leave(self, *error)
        found.append(self.axes[0][0])

    monkeypatch.setattr(Canvas, "__exit__", keep)
    return found


def colour(name: str) -> str:
    """The light colour of a name such as `@up`."""
    return LIGHT.by_name()[name.removeprefix("@").partition("/")[0]]


def hex_of(shown: Any) -> str:
    import matplotlib.colors

    text: str = matplotlib.colors.to_hex(shown)
    return text


def test_effects(drawn: list[Any], tmp_path: Path) -> None:
    names = ("a", "b")
    effects = Effects(
        names=names,
        values=pl.DataFrame({name: ["x"] for name in names}),
        classes=("yes",),
        prediction_R=np.array([0.5]),
        without_RF=np.array([[0.9, 0.1]]),
        logit_R=np.array([0.0]),
        logit_without_RF=np.array([[2.2, -2.1]]),
    )
    plots.draw_effects(effects, tmp_path / "effects.png", row=0, number=0)
    bars = [(bar.get_width(), hex_of(bar.get_facecolor())) for bar in drawn[0].patches]
    assert bars == [(pytest.approx(-2.2), LIGHT.down), (pytest.approx(2.1), LIGHT.up)]
    assert 'class="up"' in effect_bar(2.1, 2.2) and 'class="down"' in effect_bar(-2.2, 2.2)


def test_heat_maps(drawn: list[Any], tmp_path: Path) -> None:
    table = FieldDependencies(fields=("a", "b"), matrix_FF=np.array([[9.0, 2.0], [-1.0, 9.0]]))
    heat_maps.draw_dependencies(table, tmp_path / "map.png")
    image, page = drawn[0].images[0], heat_figure(table.fields, table.matrix_FF.tolist())["data"][0]
    scale = [(share, colour(name)) for share, name in page["colorscale"]]
    assert [hex_of(image.cmap(image.norm((2 * share - 1) * page["zmax"]))) for share, _ in scale] == [
        name for _, name in scale
    ]
    assert image.get_clim() == (page["zmin"], page["zmax"]) == (-2.0, 2.0)
    np.testing.assert_allclose([[w or 0.0 for w in line] for line in page["z"]], image.get_array().filled(0.0))


def test_weights(drawn: list[Any], tmp_path: Path) -> None:
    share_SF = RNG.dirichlet(np.ones(12), size=3)
    names = tuple(f"field {f}" for f in range(12))
    shape = (1, 3, 12, 12)
    path = Explanation(
        fields=names,
        values=pl.DataFrame({name: ["x"] for name in names}),
        w_RSFF=np.zeros(shape),
        mu_RSF=share_SF[np.newaxis],
        loss_RSF=np.zeros(shape[:3]),
        sparsity=1.0,
    )
    plots.draw_weights(path, tmp_path / "weights.png", row=0, number=0)
    page = weights_figure(names, share_SF.tolist(), values=["x"] * 12)
    np.testing.assert_allclose(drawn[0].get_ylim(), page["layout"]["yaxis"]["range"], rtol=1e-5)
    pictured = {round(line.get_ydata()[-1], 5): hex_of(line.get_color()) for line in drawn[0].lines[-20:-10]}
    lines = [line for line in page["data"][2:] if len(line["y"]) == 3]
    assert {round(line["y"][-1], 5): colour(line["line"]["color"]) for line in lines} == {
        round(float(share_SF[-1, f]), 5): pictured[round(float(share_SF[-1, f]), 5)]
        for f in np.argsort(-np.abs(share_SF[-1] - share_SF[0]))[:10]
    }


def test_learning(drawn: list[Any], tmp_path: Path) -> None:
    history = [
        Evaluation(
            step=s,
            epoch=float(s),
            lr=0.1,
            train_loss=3 / s,
            validation={"logloss": 0.5 + 0.1 * abs(s - 3), "loss": 0.5 + 0.1 * abs(s - 3)},
            best=s == 3,
            seconds=1.0,
        )
        for s in range(1, 6)
    ]
    plots.draw_learning(learning_curve(history), tmp_path / "learning.png")
    page = learning_figure(history, "logloss")
    np.testing.assert_allclose(drawn[0].get_ylim(), page["layout"]["yaxis"]["range"], rtol=1e-5)
    for line, trace in zip(drawn[0].lines, page["data"], strict=True):
        np.testing.assert_allclose(line.get_ydata(), trace["y"], rtol=1e-5)
        assert hex_of(line.get_color()) == colour(trace["line"]["color"])


def test_calibration(drawn: list[Any], tmp_path: Path) -> None:
    plots.draw_calibration(calibration_curve(SCORED), tmp_path / "calibration.png")
    page = calibration_figure(_calibration(SCORED), task="binary")
    np.testing.assert_allclose(drawn[0].get_xlim(), page["layout"]["xaxis"]["range"], rtol=1e-5)
    np.testing.assert_allclose(drawn[0].get_ylim(), page["layout"]["yaxis"]["range"], rtol=1e-5)
    for line, trace in zip(drawn[0].lines[:2], page["data"], strict=True):
        np.testing.assert_allclose(line.get_ydata(), trace["y"], rtol=1e-4)
        assert hex_of(line.get_color()) == colour(trace["line"]["color"])


def test_scores(drawn: list[Any], tmp_path: Path) -> None:
    plots.draw_scores(score_distribution(SCORED), tmp_path / "scores.png")
    histogram = _histogram(SCORED)
    assert histogram is not None
    page = scores_figure(histogram, task="binary")
    np.testing.assert_allclose(drawn[0].get_xlim(), page["layout"]["xaxis"]["range"], rtol=1e-5)
    outlines = drawn[0].patches[1::2]
    for outline, trace in zip(outlines, page["data"], strict=True):
        np.testing.assert_allclose(outline.get_data().values, trace["y"][:-1], atol=1e-5)
        assert hex_of(outline.get_edgecolor()) == colour(trace["line"]["color"])

"""Pictures with Matplotlib (extra `plot`): colours, canvas, bars and lines. Heat maps are in `heat_maps`.

Shape legend: S steps of refinement including the start, F fields, C classes, N bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fielddep.config.metrics import METRICS
from fielddep.errors import MissingExtraError, UserError
from fielddep.explain.curves import CalibrationCurve, LearningCurve, ScoreDistribution, calibration_range
from fielddep.explain.dependencies import Explanation, weight_range
from fielddep.explain.hiding import Effects
from fielddep.explain.importance import FieldImportance
from fielddep.tables.files import write_atomically
from fielddep.wording import amount, shorten, value_label


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The colours of a theme by meaning. Pictures use `LIGHT`; the report page follows the theme of the reader."""

    page: str
    surface: str  # background of cards and pictures
    code: str
    warning: str
    ink: str
    muted: str  # secondary text, reference lines, training rows
    line: str  # grid lines, and curves without a colour of their own
    accent: str  # links, and what is measured on held-out rows
    up: str  # raises the prediction; a dependency above 0
    down: str  # lowers the prediction; a dependency below 0
    zero: str
    right: str
    wrong: str
    series: tuple[str, ...]  # fields or classes; the first two suit a negative and a positive class

    def by_name(self) -> dict[str, str]:
        """Every colour by its name; those of the series are `series0`, `series1`, ..."""
        named: dict[str, str] = {name: value for name, value in asdict(self).items() if name != "series"}
        return named | {f"series{n}": colour for n, colour in enumerate(self.series)}


LIGHT = Palette(
    page="#fbfaf8",
    surface="#ffffff",
    code="#f4f2ee",
    warning="#fbf1e4",
    ink="#22262b",
    muted="#646b75",
    line="#e4e2dd",
    accent="#0e6f6b",
    up="#c4621b",
    down="#2868a8",
    zero="#f4f2ee",
    right="#2f7d3b",
    wrong="#b2434b",
    series=(
        *("#2868a8", "#c4621b", "#2f7d5b", "#7a5aa6", "#b2434b"),
        *("#a8860d", "#3f9fc9", "#c06a9e", "#80654a", "#6f7d2a"),
    ),
)
DARK = Palette(
    page="#14171b",
    surface="#1b1f25",
    code="#22272e",
    warning="#33291d",
    ink="#e4e7eb",
    muted="#a0a8b3",
    line="#313740",
    accent="#5cc8bd",
    up="#f0a062",
    down="#74b0ec",
    zero="#262b32",
    right="#7ecb8a",
    wrong="#e58a90",
    series=(
        *("#74b0ec", "#f0a062", "#79c6a0", "#b79ce0", "#e58a90"),
        *("#d9bd56", "#8fd6f2", "#e3a3c8", "#c2a585", "#b3c06a"),
    ),
)
N_SERIES = len(LIGHT.series)
"""Curves with a colour of their own; any others are drawn in `Palette.line`."""

MAX_LABEL = 26
DPI = 130
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": LIGHT.muted,
    "axes.labelcolor": LIGHT.ink,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": LIGHT.ink,
    "ytick.color": LIGHT.ink,
    "text.color": LIGHT.ink,
    "figure.facecolor": LIGHT.surface,
    "savefig.facecolor": LIGHT.surface,
    "legend.frameon": False,
}


class Canvas:
    """A picture that is written when its `with` block ends without an error.

    Sizes are in inches, and the suffix of the path chooses the format. With `fixed`, the axes keep their aspect ratio,
    as heat maps do; with `sharey`, the axes of a row share their vertical scale.

    Raises:
        MissingExtraError: if Matplotlib is not installed.
        UserError: if the suffix is not an image format.
    """

    def __init__(
        self,
        path: Path,
        *,
        width: float,
        height: float,
        n_rows: int = 1,
        n_columns: int = 1,
        fixed: bool = False,
        sharey: bool = False,
    ) -> None:
        matplotlib = import_matplotlib()
        self._style = matplotlib.rc_context(_STYLE)
        with matplotlib.rc_context(_STYLE):
            layout = "compressed" if fixed else "constrained"
            self.figure = matplotlib.figure.Figure(figsize=(width, height), layout=layout)
            matplotlib.backends.backend_agg.FigureCanvasAgg(self.figure)
            formats = sorted(self.figure.canvas.get_supported_filetypes())
            self.path, self.format = path, path.suffix.lstrip(".").lower() or "png"
            if self.format not in formats:
                raise UserError(f"cannot draw {path}: expected an image file such as .png, one of {', '.join(formats)}")
            self.axes = self.figure.subplots(n_rows, n_columns, squeeze=False, sharey="row" if sharey else False)

    def __enter__(self) -> Canvas:
        self._style.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                write_atomically(self.path, self._write)
        finally:
            self._style.__exit__(kind, *error)

    def title(self, text: str) -> None:
        """A line above all axes."""
        self.figure.suptitle(literal(text), x=0.008, ha="left", fontsize=11.5, fontweight="bold")

    def _write(self, path: Path) -> None:
        self.figure.savefig(path, dpi=DPI, format=self.format, bbox_inches="tight", pad_inches=0.12)


def import_matplotlib() -> Any:
    """Matplotlib without pyplot, so that no window can open."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
    except ImportError:
        raise MissingExtraError("drawing needs Matplotlib; pip install 'fielddep[plot]'") from None
    return matplotlib


def short(label: str) -> str:
    """A label of bounded length."""
    return literal(shorten(label, MAX_LABEL))


def named_value(name: str, value: str) -> str:
    """The label `field: value`."""
    return literal(value_label(name, value, MAX_LABEL))


def literal(text: str) -> str:
    """Text in which Matplotlib looks for no formula: an invalid one would be an error."""
    return text.replace("$", r"\$")


def tidy(axis: Any, *, grid: str = "both") -> None:
    """Quiet grid lines behind the data."""
    axis.grid(True, axis=grid, color=LIGHT.line, linewidth=0.8)
    axis.tick_params(length=0)


MAX_BARS = 40
BAR_INCHES = 0.26
_TAKEN_AWAY = {"permutation": "is shuffled", "hiding": "is hidden"}


def draw_importance(importance: FieldImportance, path: Path) -> None:
    """One panel per metric, the most important field for the loss on top; whiskers are one standard deviation."""
    shown = importance.ranked()[:MAX_BARS]
    positions = [importance.names.index(name) for name in shown]
    n_metrics = len(importance.metrics)
    height = BAR_INCHES * len(shown) + 1.3
    with Canvas(path, width=2.2 + 3.9 * n_metrics, height=height, n_columns=n_metrics, sharey=True) as canvas:
        for axis, metric in zip(canvas.axes[0], importance.metrics, strict=True):
            means, deviations = importance.mean_F(metric)[positions], importance.std_F(metric)[positions]
            whiskers = np.nan_to_num(deviations) if importance.method == "permutation" else None
            _draw_bars(axis, means, [LIGHT.accent] * len(means), whiskers)
            change = "drop" if METRICS[metric].higher_is_better else "rise"
            axis.set_xlabel(f"{change} in {METRICS[metric].title} from {importance.base[metric]:.4g}")
        _label_bars(canvas.axes[0][0], [short(name) for name in shown])
        n_hidden = len(importance.names) - len(shown)
        more = f"; {n_hidden} less important fields not shown" if n_hidden else ""
        taken_away = _TAKEN_AWAY[importance.method]
        canvas.title(f"Loss of quality when a field {taken_away} ({importance.n_rows:,} rows{more})")


def draw_effects(effects: Effects, path: Path, *, row: int, number: int) -> None:
    """What each field does to the prediction for a row, in log-odds, or in the unit of a regression target."""
    effect_F = effects.plotted_RF[row]
    order = np.argsort(-np.abs(effect_F), kind="stable")[:MAX_BARS]
    with Canvas(path, width=7.2, height=BAR_INCHES * len(order) + 1.3) as canvas:
        axis = canvas.axes[0][0]
        colours = [LIGHT.up if effect >= 0 else LIGHT.down for effect in effect_F[order]]
        _draw_bars(axis, effect_F[order], colours, None)
        names = [effects.names[f] for f in order]
        _label_bars(axis, [named_value(name, effects.values[name][row]) for name in names])
        label = short(str(effects.classes[row])) if effects.classes else None
        scale = "the prediction" if label is None else f"the log-odds of {label}"
        axis.set_xlabel(f"effect on {scale}: with the value, minus with it hidden")
        what = "prediction" if label is None else f"probability of {label}"
        canvas.title(f"Row {number}: {what} {amount(float(effects.prediction_R[row]))}")


def _label_bars(axis: Any, labels: list[str]) -> None:
    """Labels of the bars, the first on top."""
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)


def _draw_bars(axis: Any, values: Any, colours: list[str], deviations: Any) -> None:
    whiskers = {"ecolor": LIGHT.ink, "elinewidth": 1, "capsize": 2}
    axis.barh(range(len(values)), values, xerr=deviations, height=0.7, color=colours, error_kw=whiskers)
    axis.axvline(0, color=LIGHT.muted, linewidth=1)
    tidy(axis, grid="x")
    axis.spines["left"].set_visible(False)


CALIBRATION_LABELS = {
    "binary": ("predicted probability", "share of positive rows"),
    "multiclass": ("probability of the likeliest class", "share of rows where it is right"),
    "regression": ("predicted value", "mean true value"),
}


def draw_weights(explanation: Explanation, path: Path, *, row: int, number: int) -> None:
    """The weight mu / lambda of every field at each step of refinement; the fields that moved most have labels."""
    share_SF = explanation.mu_RSF[row] / explanation.sparsity
    n_steps, n_fields = share_SF.shape
    moved = np.argsort(-np.abs(share_SF[-1] - share_SF[0]), kind="stable")[:N_SERIES].tolist()
    values = explanation.values.row(row)
    with Canvas(path, width=7.4, height=max(3.2, 0.27 * len(moved) + 1.4)) as canvas:
        axis = canvas.axes[0][0]
        axis.axhline(1 / n_fields, color=LIGHT.muted, linewidth=1, linestyle="--")
        axis.plot(share_SF[:, [f for f in range(n_fields) if f not in moved]], color=LIGHT.line, linewidth=1)
        for colour, f in zip(LIGHT.series, moved, strict=False):
            axis.plot(share_SF[:, f], color=colour, linewidth=2, marker="o", markersize=4)
        axis.set(xlabel="step of refinement", ylabel="mu / lambda", ylim=weight_range(share_SF))
        axis.set_xticks(range(n_steps))
        tidy(axis)
        ends = [(float(share_SF[-1, f]), named_value(explanation.fields[f], str(values[f]))) for f in moved]
        _label_ends(axis, ends, x=n_steps - 1)
        canvas.title(f"Row {number}: weight of every field")
        others = f"; grey: {n_fields - len(moved)} fields that moved less" if n_fields > len(moved) else ""
        axis.set_title(f"dashed: equal weights{others}")


def draw_learning(curve: LearningCurve, path: Path) -> None:
    """Training and validation loss by epoch, with the kept parameters marked, and one panel per further metric."""
    frame = curve.to_frame()
    panels = [name for name in curve.metrics if METRICS[name].in_log]
    with Canvas(path, width=4.6 * len(panels), height=3.5, n_columns=len(panels)) as canvas:
        axes = canvas.axes[0]
        axes[0].plot(frame["epoch"], frame["train_loss"], ":", color=LIGHT.muted, linewidth=1.8, label="training")
        axes[0].set_ylim(curve.loss_range)
        for axis, name in zip(axes, panels, strict=True):
            values = frame[f"validation_{name}"]
            axis.plot(frame["epoch"], values, color=LIGHT.accent, linewidth=1.8, label="validation")
            if curve.best is not None:
                best = curve.best.validation[name]
                label = f"kept: {best:.4f}"
                axis.plot([curve.best.epoch], [best], "o", color=LIGHT.accent, markersize=6.5, label=label)
            axis.set_title(METRICS[name].title)
            axis.set_xlabel("epoch")
            axis.legend()
            tidy(axis)
        canvas.title("Learning curves")


def draw_calibration(curve: CalibrationCurve, path: Path) -> None:
    """Predictions against what happened, with 95 % intervals; the two agree on the dashed line."""
    ends = calibration_range(curve.predicted_N, curve.low_N, curve.high_N, task=curve.task)
    bars = np.stack([curve.observed_N - curve.low_N, curve.high_N - curve.observed_N]).clip(min=0)
    predicted, observed = CALIBRATION_LABELS[curve.task]
    with Canvas(path, width=4.8, height=4.7) as canvas:
        axis = canvas.axes[0][0]
        axis.plot(ends, ends, color=LIGHT.muted, linewidth=1.2, linestyle="--")
        points = {"fmt": "o-", "color": LIGHT.accent, "markersize": 4.5, "elinewidth": 1}
        axis.errorbar(curve.predicted_N, curve.observed_N, yerr=bars, **points)
        axis.set(xlim=ends, ylim=ends, aspect="equal", xlabel=predicted, ylabel=observed)
        axis.set_title(f"mean distance from the dashed line: {amount(curve.gap)}")
        if curve.task != "regression":
            _show_percent(axis)
        tidy(axis)
        canvas.title("Calibration")


def draw_scores(spread: ScoreDistribution, path: Path) -> None:
    """Distribution of the predicted probabilities in each class, or in the largest of many classes."""
    totals_C = spread.weight_CN.sum(axis=1)
    binary = len(spread.classes) == 2
    largest = np.sort(np.argsort(-totals_C, kind="stable")[:N_SERIES]).tolist()
    with Canvas(path, width=6.6, height=3.6) as canvas:
        axis = canvas.axes[0][0]
        for colour, c in zip(LIGHT.series, largest, strict=False):
            axis.stairs(spread.share_CN[c], spread.edges, color=colour, fill=binary, alpha=0.12)
            label = f"{short(str(spread.classes[c]))} ({totals_C[c]:,.0f} rows)"
            axis.stairs(spread.share_CN[c], spread.edges, color=colour, linewidth=1.6, label=label)
        meant = short(str(spread.classes[1])) if binary else "the true class"
        axis.set(xlim=(0, spread.edges[-1]), xlabel=f"predicted probability of {meant}", ylabel="share of rows")
        axis.legend(title="true class")
        _show_percent(axis)
        tidy(axis)
        n_hidden = len(totals_C) - len(largest)
        canvas.title("Predictions by class" + (f" ({n_hidden} smaller classes not shown)" if n_hidden else ""))


def _show_percent(axis: Any) -> None:
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


def spread(values: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Positions near ascending values, at least `gap` apart, and between `low` and `high` if there is room.

    Example:
        >>> spread([0.0, 1.0, 9.0, 10.0], 0.0, 10.0, 2.0)
        [0.0, 2.0, 8.0, 10.0]
    """
    places: list[float] = []
    for value in values:
        places.append(max(value, places[-1] + gap) if places else max(value, low))
    top = high
    for position in reversed(range(len(places))):
        places[position] = min(places[position], top)
        top = places[position] - gap
    return places


def _label_ends(axis: Any, ends: list[tuple[float, str]], *, x: float) -> None:
    """Labels at the right ends of lines, in their colours, moved apart if they would overlap."""
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    order = sorted(range(len(ends)), key=lambda e: ends[e][0])
    gap = (high - low) / max(len(ends), N_SERIES)
    places = spread([ends[e][0] for e in order], low, high, gap)
    left, right = axis.get_xlim()
    beyond = right + 0.03 * (right - left)
    for e, place in zip(order, places, strict=True):
        value, text = ends[e]
        axis.plot([x, beyond], [value, place], color=LIGHT.series[e], linewidth=0.7, clip_on=False)
        axis.text(beyond, place, f" {text}", color=LIGHT.series[e], va="center", fontsize=8)
    axis.set_xlim(left, right)

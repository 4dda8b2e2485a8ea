"""Pictures of numbers with Matplotlib (extra `plot`): bars and lines. Heat maps are in `heat_maps`.

Shape legend: S steps of refinement with the start, F fields, C classes, N bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fielddep.config.metrics import METRICS
from fielddep.errors import MissingExtraError, UserError
from fielddep.explain.curves import CalibrationCurve, LearningCurve, ScoreDistribution, calibration_range
from fielddep.explain.dependencies import Explanation, weight_range
from fielddep.explain.hiding import REFINEMENT, Effects
from fielddep.explain.importance import FieldImportance
from fielddep.explain.palette import LIGHT, N_SERIES
from fielddep.tables.files import write_atomically
from fielddep.wording import amount, shorten, value_label

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
    """One picture: a figure with axes, and the file that it becomes when the `with` block ends without an error.

    Args:
        path: image file; its suffix says the format.
        width: inches.
        height: inches.
        n_rows: rows of axes.
        n_columns: columns of axes.
        fixed: whether the axes keep their aspect, as maps do.
        sharey: whether the axes of a row share their vertical scale.

    Raises:
        MissingExtraError: when Matplotlib is not installed.
        UserError: when the suffix is no image format.
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
    """Matplotlib with what is needed of it, never a window."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
    except ImportError:
        raise MissingExtraError("drawing needs Matplotlib; pip install 'fielddep[plot]'") from None
    return matplotlib


def short(label: str, n_characters: int = MAX_LABEL) -> str:
    """A label that leaves room for others."""
    return literal(shorten(label, n_characters))


def named_value(name: str, value: str) -> str:
    """The label `field: value`."""
    return literal(value_label(name, value, MAX_LABEL))


def literal(text: str) -> str:
    """Text that Matplotlib does not take for a formula, which it would refuse where it is none."""
    return text.replace("$", r"\$")


def tidy(axis: Any, *, grid: str = "both") -> None:
    """Quiet grid lines behind the data."""
    axis.grid(True, axis=grid, color=LIGHT.line, linewidth=0.8)
    axis.tick_params(length=0)


MAX_BARS = 40
BAR_INCHES = 0.26
_TAKEN_AWAY = {"permutation": "is shuffled", "hiding": "is hidden"}


def draw_importance(importance: FieldImportance, path: Path) -> None:
    """One panel a metric, fields by falling importance for the loss; whiskers are one standard deviation."""
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
        canvas.title(
            f"Loss of quality when a field {_TAKEN_AWAY[importance.method]} ({importance.n_rows:,} rows{more})"
        )


def draw_effects(effects: Effects, path: Path, *, row: int = 0, number: int | None = None) -> None:
    """What each field does to the prediction of a row, in log-odds, or in the unit of a regression."""
    effect_F = effects.plotted_RF[row]
    order = np.argsort(-np.abs(effect_F), kind="stable")[:MAX_BARS]
    with Canvas(path, width=7.2, height=BAR_INCHES * len(order) + 1.3) as canvas:
        axis = canvas.axes[0][0]
        colours = [LIGHT.up if effect >= 0 else LIGHT.down for effect in effect_F[order]]
        _draw_bars(axis, effect_F[order], colours, None)
        _label_bars(axis, [_effect_label(effects, row, int(f)) for f in order])
        label = short(str(effects.classes[row])) if effects.classes else None
        scale = "the prediction" if label is None else f"the log-odds of {label}"
        axis.set_xlabel(f"effect on {scale}: with the value, minus with it hidden")
        name = row if number is None else number
        what = "prediction" if label is None else f"probability of {label}"
        canvas.title(f"Row {name}: {what} {amount(float(effects.prediction_R[row]))}")


def _label_bars(axis: Any, labels: list[str]) -> None:
    """Names of the bars, the first on top."""
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)


def _draw_bars(axis: Any, values: Any, colours: list[str], deviations: Any) -> None:
    axis.barh(
        range(len(values)),
        values,
        xerr=deviations,
        height=0.7,
        color=colours,
        error_kw={"ecolor": LIGHT.ink, "elinewidth": 1, "capsize": 2},
    )
    axis.axvline(0, color=LIGHT.muted, linewidth=1)
    tidy(axis, grid="x")
    axis.spines["left"].set_visible(False)


def _effect_label(effects: Effects, row: int, position: int) -> str:
    name = effects.names[position]
    return short(name) if name == REFINEMENT else named_value(name, effects.values[name][row])


CALIBRATION_LABELS = {
    "binary": ("predicted probability", "share of positive rows"),
    "multiclass": ("probability of the likeliest class", "share of rows where it is right"),
    "regression": ("predicted value", "mean true value"),
}


def draw_weights(explanation: Explanation, path: Path, *, row: int = 0, number: int | None = None) -> None:
    """The weight mu of every field over the steps of refinement, as a share of lambda; those that moved most are named.

    Args:
        explanation: refined rows.
        path: image file.
        row: position in `explanation`.
        number: what the row is called; default: its position.
    """
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
        canvas.title(f"Row {row if number is None else number}: weight of every field")
        others = f"; grey: {n_fields - len(moved)} fields that moved less" if n_fields > len(moved) else ""
        axis.set_title(f"dashed: equal weights{others}")


def draw_learning(curve: LearningCurve, path: Path) -> None:
    """Training and validation loss over the epochs, the kept parameters marked, and one panel a further metric."""
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
    """What was predicted against what happened, with 95 % intervals; on the dashed line the two agree."""
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
            _show_percent(axis.xaxis, axis.yaxis)
        tidy(axis)
        canvas.title("Calibration")


def draw_scores(spread: ScoreDistribution, path: Path) -> None:
    """Predicted probabilities of the rows of each class; of many classes the largest."""
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
        _show_percent(axis.xaxis, axis.yaxis)
        tidy(axis)
        n_hidden = len(totals_C) - len(largest)
        canvas.title("Predictions by class" + (f" ({n_hidden} smaller classes not shown)" if n_hidden else ""))


def _show_percent(*axes: Any) -> None:
    for axis in axes:
        axis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


def spread(values: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Rising places near rising values, at least `gap` apart, and within `low` to `high` where there is room.

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
    """Labels at the right ends of lines, in their colours, moved apart where they would overlap."""
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    order = sorted(range(len(ends)), key=lambda e: ends[e][0])
    gap = (high - low) / max(len(ends), N_SERIES)
    places = spread([ends[e][0] for e in order], low, high, gap)
    right = axis.get_xlim()[1]
    for e, place in zip(order, places, strict=True):
        value, text = ends[e]
        beyond = right + 0.03 * (right - axis.get_xlim()[0])
        axis.plot([x, beyond], [value, place], color=LIGHT.series[e], linewidth=0.7, clip_on=False)
        axis.text(beyond, place, f" {text}", color=LIGHT.series[e], va="center", fontsize=8)
    axis.set_xlim(axis.get_xlim()[0], right)

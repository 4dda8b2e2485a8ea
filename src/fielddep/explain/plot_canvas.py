"""The ground that all pictures are drawn on: figures, colours, labels, and how a file is written (extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fielddep.errors import MissingExtraError, UserError
from fielddep.explain.labels import cut, value_label
from fielddep.files import write_atomically

MAX_LABEL = 26
DPI = 130
INK, FAINT, GRID = "#222222", "#9a9a9a", "#e4e4e4"
BLUE, ORANGE = "#0072b2", "#d55e00"
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#5b5b9f", "#7f7f7f", "#b8a600")
"""Okabe and Ito's colours, which colour-blind eyes can tell apart, and four more for crowded pictures."""
METRIC_NAMES = {"auc": "AUC", "mse": "MSE", "mae": "MAE", "calibration_error": "calibration error"}
"""How metrics are written where it is not by their own name."""

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
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
    return literal(cut(label, n_characters))


def named_value(name: str, value: str) -> str:
    """The label `field: value`."""
    return literal(value_label(name, value, MAX_LABEL))


def literal(text: str) -> str:
    """Text that Matplotlib does not take for a formula, which it would refuse where it is none."""
    return text.replace("$", r"\$")


def tidy(axis: Any, *, grid: str = "both") -> None:
    """Quiet grid lines behind the data."""
    axis.grid(True, axis=grid, color=GRID, linewidth=0.8)
    axis.tick_params(length=0)

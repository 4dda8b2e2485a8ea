"""Drawing of explanations with Matplotlib (extra `plot`); the numbers come from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fielddep.errors import MissingExtraError, UserError
from fielddep.explain.dependencies import Explanation, FieldDependencies
from fielddep.files import write_atomically

MAX_LABEL = 24


def draw_dependencies(tables: Sequence[tuple[str, FieldDependencies, Sequence[str]]], path: Path) -> None:
    """Heat maps side by side, each normalised to (-1, 1), written as an image.

    Args:
        tables: title, numbers and column labels of every map; row labels are the field names.
        path: image file; its suffix says the format.
    """
    figure_class = _figure_class()
    suffix = path.suffix.lstrip(".").lower() or "png"
    n_fields = len(tables[0][1].fields)
    side = max(3.2, 0.36 * n_fields + 1.2)
    figure = figure_class(figsize=((side + 0.6) * len(tables) + 1.4, side + 1.6), layout="constrained")
    formats = sorted(figure.canvas.get_supported_filetypes())
    if suffix not in formats:
        raise UserError(f"cannot draw {path}: expected an image file such as .png, one of {', '.join(formats)}")
    axes = figure.subplots(1, len(tables), squeeze=False)[0]
    for axis, (title, table, labels) in zip(axes, tables, strict=True):
        image = axis.imshow(table.normalized(), cmap="RdBu_r", vmin=-1, vmax=1)
        axis.set_title(_literal(title))
        axis.set_xticks(range(n_fields), [_short(label) for label in labels], rotation=90)
        axis.set_yticks(range(n_fields), [_short(name) for name in table.fields])
        axis.set_xlabel("explained field")
    axes[0].set_ylabel("explaining field")
    for axis in axes[1:]:
        axis.set_yticklabels([])
    figure.colorbar(image, ax=list(axes), shrink=0.8, label="dependency, largest = 1")
    write_atomically(path, lambda p: figure.savefig(p, dpi=130, format=suffix, bbox_inches="tight"))


def draw_explanation(model: FieldDependencies, explanation: Explanation, path: Path, *, row: int = 0) -> None:
    """W(0) of the model beside mu(T) * W(T) of one row, labelled with the row's values."""
    values = explanation.values.row(row)
    labels = [f"{name}: {value}" for name, value in zip(explanation.fields, values, strict=True)]
    draw_dependencies(
        [("whole model, W(0)", model, model.fields), ("this row, mu(T) W(T)", explanation.refined(row), labels)], path
    )


def _short(label: str) -> str:
    return _literal(label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…")


def _literal(text: str) -> str:
    """Text that Matplotlib does not take for a formula, which it would refuse where it is none."""
    return text.replace("$", r"\$")


def _figure_class() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing needs Matplotlib; pip install 'fielddep[plot]'") from None

    def build(**settings: Any) -> Any:
        figure = Figure(**settings)
        FigureCanvasAgg(figure)
        return figure

    return build

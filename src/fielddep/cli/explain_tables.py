"""What `fielddep explain` prints: short tables of the numbers that it also writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fielddep.cli.console import console, log, print_table
from fielddep.config.metrics import metric_title
from fielddep.wording import amount

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fielddep.explain.dependencies import Dependency, FieldDependencies
    from fielddep.explain.groups import RowGroup, RowGroups
    from fielddep.explain.importance import FieldImportance
    from fielddep.explain.neighbours import NearestValues
    from fielddep.explain.overview import RowsOverview, TableOverview

N_STRONGEST = 10
MAX_PRINTED = 5
"""Rows that are printed; all are written."""
MAX_FIELDS = 20
"""Fields of a row or of importance that are printed."""
CELL_WIDTH = 8
"""Characters of a cell of the whole table, with the space between cells."""


def print_model(model: FieldDependencies) -> None:
    """The strongest entries of W(0) and, where it fits the terminal, all of it."""
    rows = [[entry.dependent, entry.source, f"{entry.weight:+.4f}"] for entry in model.strongest(N_STRONGEST)]
    title = "strongest dependencies of the model, W(0)"
    print_table(["field", "depends on", "weight"], rows, title=title, texts=("depends on",))
    if CELL_WIDTH * (len(model.fields) + 2) > console().width:
        return
    rows = [
        [name[: 2 * CELL_WIDTH], *("·" if i == j else f"{w:+.2f}" for j, w in enumerate(weights))]
        for i, (name, weights) in enumerate(zip(model.fields, model.normalized(), strict=True))
    ]
    header = ["", *(name[: CELL_WIDTH - 3] for name in model.fields)]
    print_table(header, rows, title="W(0), largest entry = 1: each column expresses its field by the others")


def print_nearest(found: Sequence[NearestValues]) -> None:
    """The nearest values of each value asked for."""
    for near in found:
        rows = [
            [value, f"{similarity:+.3f}", f"{count:,}"]
            for value, similarity, count in zip(near.values, near.similarities, near.counts, strict=True)
        ]
        title = f"{near.field}: values most like {near.value} ({near.count:,} rows in training)"
        print_table(["value", "cosine", "rows"], rows, title=title)


def print_rows(overview: RowsOverview, out: Path | None = None) -> None:
    """One table a row: what each field does to the prediction, its weight mu, and its strongest source.

    Args:
        overview: the rows.
        out: folder that all rows and fields are written to.
    """
    for row, number in list(enumerate(overview.numbers))[:MAX_PRINTED]:
        _print_row(overview, row, number, out)
    _log_left_out(len(overview.numbers) - MAX_PRINTED, "row", out, "effects.csv")


def print_overview(found: TableOverview, out: Path | None = None) -> None:
    """Importance of the fields, calibration, and the groups of rows.

    Args:
        found: what was found.
        out: folder that all of it is written to.
    """
    if found.importance is not None and found.hiding is not None:
        _print_importance(found.importance, found.hiding, out)
    if found.calibration is not None:
        console().print(f"mean distance of prediction and truth (calibration): {amount(found.calibration.gap)}\n")
    if found.groups is not None:
        _print_groups(found.groups)


def _print_row(overview: RowsOverview, row: int, number: int, out: Path | None) -> None:
    effects, explanation = overview.effects, overview.explanation
    effect_F = effects.effect_RF[row]
    order = sorted(range(len(effects.names)), key=lambda f: -abs(effect_F[f]))[:MAX_FIELDS]
    lines = [[effects.names[f], effects.values[effects.names[f]][row], f"{effect_F[f]:+.4f}"] for f in order]
    header = ["field", "value", "effect"]
    if explanation is not None:
        header += ["mu / lambda", "strongest source"]
        sources = explanation.strongest_sources(row).entries
        for line, f in zip(lines, order, strict=True):
            line += [f"{explanation.mu_RSF[row, -1, f] / explanation.sparsity:.4f}", _source_text(sources[f])]
    what = f"probability of {effects.classes[row]}" if effects.classes else "value"
    title = f"row {number}: predicted {what} {effects.prediction_R[row]:.4f}"
    print_table(header, lines, title=title, texts=("value", "strongest source"))
    _log_left_out(len(effects.names) - MAX_FIELDS, "field", out, "effects.csv")
    if overview.refinement is not None and explanation is not None:
        losses = explanation.loss_RSF[row].sum(axis=1)
        effect = overview.refinement.effect_RF[row, 0]
        console().print(
            f"refinement: dependency loss {losses[0]:.4g} -> {losses[-1]:.4g}, effect on the prediction {effect:+.4f}\n"
        )


def _source_text(entry: Dependency) -> str:
    return f"{entry.source} {entry.weight:+.3f}"


def _print_importance(importance: FieldImportance, hiding: FieldImportance, out: Path | None) -> None:
    metrics = importance.metrics
    names = list(map(metric_title, metrics))
    no_fields = [name for name in hiding.names if name not in importance.names]  # refinement
    rows = []
    for name in [*importance.ranked()[:MAX_FIELDS], *no_fields]:
        cells = [_shuffled(importance, metric, name) for metric in metrics]
        cells += [f"{hiding.mean_F(metric)[hiding.names.index(name)]:+.4f}" for metric in metrics]
        rows.append([name, *cells])
    header = ["field", *(f"{name}, shuffled" for name in names), *(f"{name}, hidden" for name in names)]
    base = ", ".join(f"{name} {importance.base[metric]:.4f}" for name, metric in zip(names, metrics, strict=True))
    print_table(header, rows, title=f"how much worse without a field ({base} with all, {importance.n_rows:,} rows)")
    _log_left_out(len(importance.names) - MAX_FIELDS, "field", out, "importance.csv", "hiding.csv")


def _log_left_out(n: int, what: str, out: Path | None, *files: str) -> None:
    """How many lines are not printed, and where they are."""
    if n > 0:
        written = " and ".join(str(out / file) for file in files) if out is not None else ""
        where = f"all are written to {written}" if written else "--out writes all"
        log(f"{n:,} more {what}{' is' if n == 1 else 's are'} not printed; {where}")


def _shuffled(importance: FieldImportance, metric: str, name: str) -> str:
    if name not in importance.names:
        return "-"
    position = importance.names.index(name)
    return f"{importance.mean_F(metric)[position]:+.4f} ± {importance.std_F(metric)[position]:.4f}"


def _print_groups(groups: RowGroups) -> None:
    rows = [
        [
            str(number),
            f"{group.n_rows:,}",
            _means_text(group.prediction),
            "-" if group.target is None else _means_text(group.target),
            ", ".join(f"{e.dependent} on {e.source} {e.weight:+.2g}" for e in group.contrast.strongest(2)),
            _values_text(group),
        ]
        for number, group in enumerate(groups.groups)
    ]
    header = ["group", "rows", "predicted", "true", "dependencies that differ most", "values more frequent in it"]
    print_table(header, rows, title="groups of rows with similar dependencies", texts=header[4:])


def _means_text(means: dict[str, float]) -> str:
    """The mean of a value or of one class; of many classes the likeliest."""
    name, value = max(means.items(), key=lambda item: item[1])
    return amount(value) if len(means) == 1 else f"{name.removeprefix('probability_')} {value:.2f}"


def _values_text(group: RowGroup) -> str:
    return ", ".join(f"{v.field}: {v.value} ({v.share:.0%}, all {v.share_of_all:.0%})" for v in group.values[:3])

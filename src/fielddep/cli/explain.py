"""`fielddep explain`: which fields depend on which, in the model, in single rows and over a table.

It prints short tables; `--out` writes all numbers and pictures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import PADDING, console, log, print_table
from fielddep.cli.options import DeviceOption, ReadOption, RunArgument, find_bundle, find_store, reading_of
from fielddep.config.metrics import metric_title
from fielddep.errors import UserError
from fielddep.wording import amount, percent, shorten

if TYPE_CHECKING:
    from fielddep.artifacts.bundle import Bundle
    from fielddep.explain.curves import LearningCurve
    from fielddep.explain.dependencies import FieldDependencies
    from fielddep.explain.evidence import EvidenceRanking, SeenValues
    from fielddep.explain.groups import RowGroups
    from fielddep.explain.hiding import Effects
    from fielddep.explain.importance import FieldImportance
    from fielddep.explain.neighbours import NearestValues
    from fielddep.explain.overview import OverviewFolder, RowsOverview, TableOverview
    from fielddep.explain.rows import PickedRows

FILE_SUFFIXES = (".png", ".svg", ".pdf", ".json", ".csv", ".html")
N_STRONGEST = 10
MAX_ROWS = 5
"""Rows that are printed; all are written."""
MAX_FIELDS = 20
"""Fields of a row or of importance that are printed."""
WEIGHT_WIDTH, NAME_WIDTH = 5, 16
"""Characters of an entry of W(0), and at most of a row's name."""

TableArgument = Annotated[
    str | None,
    typer.Argument(
        help="Table or store with rows to explain. Without it, the model alone is explained.", metavar="TABLE"
    ),
]
RowsOption = Annotated[
    str, typer.Option("--rows", help="Rows of TABLE, counted from 0, such as 0,7,12 or 0-4.", metavar="N,N-N,...")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder for all numbers (CSV, JSON) and pictures (PNG).", metavar="DIR")
]
ImportanceOption = Annotated[
    bool | None,
    typer.Option(
        "--importance/--no-importance",
        help="Measure importance, calibration and scores. Default: if TABLE has the target.",
        show_default=False,
    ),
]
GroupsOption = Annotated[
    int, typer.Option("--groups", help="Number of groups of similar rows; 0: none.", min=0, metavar="N")
]
SampleOption = Annotated[
    int,
    typer.Option(
        "--sample", help="Maximum number of random rows for importance and groups; 0: none.", min=0, metavar="N"
    ),
]
NearOption = Annotated[
    list[str] | None,
    typer.Option("--near", help="Show the values most similar to this one. Repeatable.", metavar="FIELD=VALUE"),
]
PartOption = Annotated[
    str | None,
    typer.Option(
        "--part", help="Part of a store to sample: train, validation, test or all. Default: test.", metavar="PART"
    ),
]


def explain(
    run: RunArgument,
    table: TableArgument = None,
    rows: RowsOption = "0",
    out: OutOption = None,
    importance: ImportanceOption = None,
    groups: GroupsOption = 4,
    sample: SampleOption = 10_000,
    near: NearOption = None,
    part: PartOption = None,
    set_: ReadOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Show which fields depend on which, and which matter.

    Explains the model, and if TABLE is given, single rows and a sample of all rows.
    """
    from fielddep.artifacts.bundle import Bundle
    from fielddep.explain.overview import OverviewFolder
    from fielddep.explain.rows import pick_rows

    numbers = parse_rows(rows)
    check_options(out, importance, sample)
    bundle = Bundle.load(find_bundle(run), device=device)
    folder = None if out is None else OverviewFolder(out)
    explain_values(bundle, near or [], folder)
    explain_model(bundle, run, folder, alone=table is None and not near)
    if table is not None:
        picked = pick_rows(
            bundle,
            find_store(table) or table,
            numbers,
            config=reading_of(bundle, set_),
            n_sample=sample,
            with_target=importance,
            part=part,
        )
        explain_rows(bundle, picked, numbers, folder)
        explain_sample(bundle, picked, table, groups, folder)
    if folder is not None:
        log(f"wrote {len(folder.written)} files to {folder.folder}")
        if not folder.draws:
            log("for pictures install Matplotlib: pip install 'fielddep[plot]'")


def parse_rows(text: str) -> tuple[int, ...]:
    """Row numbers from a text such as 0,7,12-14, each once, in the given order.

    Raises:
        UserError: for anything else, and for more rows than `overview_rows` takes.
    """
    from fielddep.explain.overview import MAX_CHOSEN

    numbers: dict[int, None] = {}
    for word in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", word)
        if match is None:
            raise UserError(f"expected --rows as numbers and ranges, such as 0,7,12 or 0-4; given {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"expected --rows as rising ranges, such as 0-4; given {word.strip()!r}")
        numbers |= dict.fromkeys(range(first, min(last, first + MAX_CHOSEN) + 1))
        if len(numbers) > MAX_CHOSEN:
            raise UserError(f"expected at most {MAX_CHOSEN:,} rows in --rows, given {text!r}; ask for fewer")
    return tuple(numbers)


def check_options(out: Path | None, importance: bool | None, sample: int) -> None:
    """Refuse options that contradict each other, before anything is computed."""
    if out is not None and (out.is_file() or out.suffix.lower() in FILE_SUFFIXES):
        raise UserError(f"expected a folder as --out, for many files; given {out}")
    if importance and sample == 0:
        raise UserError("--importance needs a sample of rows, given --sample 0. Drop one of the two")


def explain_values(bundle: Bundle, asked: list[str], folder: OverviewFolder | None) -> None:
    """The values most similar to those of `--near`."""
    from fielddep.explain.neighbours import nearest_values

    found = []
    for text in asked:
        field, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"expected --near FIELD=VALUE, such as colour=red; given {text!r}")
        found.append(nearest_values(bundle, field, value or None))
    print_nearest(found)
    if folder is not None and found:
        folder.write_nearest(found)


def explain_model(bundle: Bundle, run: Path, folder: OverviewFolder | None, *, alone: bool) -> None:
    """W(0), printed if nothing else is asked for, and the history of the training."""
    from fielddep.explain.dependencies import global_dependencies, learns_dependencies

    learned = learns_dependencies(bundle)
    if alone and (learned or folder is None):
        print_model(global_dependencies(bundle))  # refuses a model that has none
    if folder is not None:
        folder.write_model(global_dependencies(bundle) if learned else None, _learning_of(run))


def _learning_of(run: Path) -> LearningCurve | None:
    """The learning curve of a run; a bundle has none."""
    from fielddep.artifacts.run import RUN, Run
    from fielddep.explain.curves import learning_curve

    return learning_curve(Run.open(run).history) if RUN.state(run) == "finished" else None


def explain_rows(bundle: Bundle, picked: PickedRows, numbers: Sequence[int], folder: OverviewFolder | None) -> None:
    """The chosen rows, one by one."""
    from fielddep.explain.dependencies import global_dependencies, learns_dependencies
    from fielddep.explain.overview import overview_rows

    chosen = overview_rows(bundle, picked.chosen, numbers, values=picked.values)
    print_rows(chosen, None if folder is None else folder.folder)
    if folder is not None:
        folder.write_rows(chosen, global_dependencies(bundle) if learns_dependencies(bundle) else None)


def explain_sample(
    bundle: Bundle, picked: PickedRows, table: str, n_groups: int, folder: OverviewFolder | None
) -> None:
    """Importance, calibration and groups over a sample of the rows, if there is one."""
    from fielddep.explain.overview import overview_table

    if picked.sample is None:
        return
    n_sample, n_rows = len(picked.sample), picked.n_rows
    rows = f"all {n_rows:,} rows" if n_sample == n_rows else f"a sample of {n_sample:,} of {n_rows:,} rows"
    part = "" if picked.part == "all" else f" ({picked.part})"
    without = "" if picked.sample.target_R is not None else "; no importance, because the target is not read"
    log(f"over {rows} of {table}{part}{without}")
    found = overview_table(bundle, picked.sample, n_groups=n_groups)
    print_overview(found, None if folder is None else folder.folder)
    if folder is not None:
        folder.write_table(found)


def print_model(model: FieldDependencies) -> None:
    """The strongest entries of W(0), and all of it if that fits the terminal."""
    rows = [[entry.dependent, entry.source, f"{entry.weight:+.4f}"] for entry in model.strongest(N_STRONGEST)]
    title = "strongest dependencies of the model, W(0)"
    print_table(["field", "depends on", "weight"], rows, title=title, texts=("depends on",))
    names = fitting_names(model.fields, console().width)
    if not names:
        return
    rows = [
        [shorten(name, NAME_WIDTH), *("·" if i == j else f"{w:+.2f}" for j, w in enumerate(weights))]
        for i, (name, weights) in enumerate(zip(model.fields, model.normalized(), strict=True))
    ]
    print_table(["", *names], rows, title="W(0), largest entry = 1: each column expresses its field by the others")


def fitting_names(fields: Sequence[str], width: int) -> list[str]:
    """Headings of the columns of W(0), as long as the width allows; none if the table is too wide in any case."""
    lengths = [max(len(name), WEIGHT_WIDTH) for name in fields]
    room = width - 1 - PADDING * (len(fields) + 1) - min(max(lengths), NAME_WIDTH)
    for longest in range(max(lengths), WEIGHT_WIDTH - 1, -1):
        if sum(min(length, longest) for length in lengths) <= room:
            return [shorten(name, longest) for name in fields]
    return []


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
    """One table per row: the effect of each field on the prediction, its weight mu, and its strongest source."""
    for row in range(min(len(overview.numbers), MAX_ROWS)):
        _print_row(overview, row, out)
    _log_omitted(len(overview.numbers) - MAX_ROWS, "row", out, "effects.csv")


def _print_row(overview: RowsOverview, row: int, out: Path | None) -> None:
    effects, explanation = overview.effects, overview.explanation
    effect_F = effects.effect_RF[row]
    order = sorted(range(len(effects.names)), key=lambda f: -abs(effect_F[f]))[:MAX_FIELDS]
    lines = [[effects.names[f], _value_text(effects, f, row), f"{effect_F[f]:+.4f}"] for f in order]
    header = ["field", "value", "effect"]
    if explanation is not None:
        header += ["mu / lambda", "strongest source"]
        sources = explanation.strongest_sources(row).entries
        for line, f in zip(lines, order, strict=True):
            share = explanation.mu_RSF[row, -1, f] / explanation.sparsity
            line += [f"{share:.4f}", f"{sources[f].source} {sources[f].weight:+.3f}"]
    what = f"probability of {effects.classes[row]}" if effects.classes else "value"
    title = f"row {overview.numbers[row]}: predicted {what} {effects.prediction_R[row]:.4f}"
    print_table(header, lines, title=title, texts=("value", "strongest source"))
    _log_omitted(len(effects.names) - MAX_FIELDS, "field", out, "effects.csv")
    if overview.members is not None:
        console().print(f"members: {overview.members.text(row)}")
    if overview.refinement is not None and explanation is not None:
        losses = explanation.loss_RSF[row].sum(axis=1)
        effect = overview.refinement.effect_RF[row, 0]
        console().print(
            f"refinement: dependency loss {losses[0]:.4g} -> {losses[-1]:.4g}, effect on the prediction {effect:+.4f}\n"
        )
    if overview.evidence is not None and overview.evidence.rows[row]:
        _print_evidence(overview.evidence.rows[row])


def _print_evidence(found: Sequence[SeenValues]) -> None:
    """What training rows with the same values did, a sentence each."""
    rows = [[str(seen), f"{seen.effect:+.4f}"] for seen in found]
    print_table(["values", "effect"], rows, title="what training rows with the same values did")


def _print_ranking(ranking: EvidenceRanking, out: Path | None) -> None:
    """The combinations that move predictions most."""
    numbers = zip(ranking.combinations, ranking.effect_K, ranking.seen_K, strict=True)
    rows = [[", ".join(fields), f"{effect:.4f}", percent(seen)] for fields, effect, seen in numbers]
    title = f"how much training rows with the same values move predictions (mean of {ranking.n_rows:,} rows)"
    print_table(["fields", "effect", "rows seen"], rows[:N_STRONGEST], title=title)
    _log_omitted(len(rows) - N_STRONGEST, "combination", out, "evidence_ranking.csv")


def _value_text(effects: Effects, position: int, row: int) -> str:
    """The value of a field; for a list also the strongest of its values, with its own effect."""
    name = effects.names[position]
    spoken = effects.spoken[name][row] if name in effects.spoken else None
    value = str(effects.values[name][row])
    return value if spoken is None else f"{value} ({spoken.value} {spoken.effect:+.4f})"


def print_overview(found: TableOverview, out: Path | None = None) -> None:
    """Importance of the fields, ranking of the evidence, calibration, and groups of rows."""
    if found.importance is not None and found.hiding is not None:
        _print_importance(found.importance, found.hiding, out)
    if found.evidence is not None:
        _print_ranking(found.evidence, out)
    if found.calibration is not None:
        console().print(f"mean distance of prediction and truth (calibration): {amount(found.calibration.gap)}\n")
    if found.groups is not None:
        _print_groups(found.groups)


def _print_importance(importance: FieldImportance, hiding: FieldImportance, out: Path | None) -> None:
    metrics = importance.metrics
    names = list(map(metric_title, metrics))
    not_fields = [name for name in hiding.names if name not in importance.names]  # refinement
    rows = []
    for name in [*importance.ranked()[:MAX_FIELDS], *not_fields]:
        cells = [_shuffled(importance, metric, name) for metric in metrics]
        cells += [f"{hiding.mean_F(metric)[hiding.names.index(name)]:+.4f}" for metric in metrics]
        rows.append([name, *cells])
    header = ["field", *(f"{name}, shuffled" for name in names), *(f"{name}, hidden" for name in names)]
    base = ", ".join(f"{name} {importance.base[metric]:.4f}" for name, metric in zip(names, metrics, strict=True))
    print_table(header, rows, title=f"how much worse without a field ({base} with all, {importance.n_rows:,} rows)")
    _log_omitted(len(importance.names) - MAX_FIELDS, "field", out, "importance.csv", "hiding.csv")


def _shuffled(importance: FieldImportance, metric: str, name: str) -> str:
    if name not in importance.names:
        return "-"
    position = importance.names.index(name)
    return f"{importance.mean_F(metric)[position]:+.4f} ± {importance.std_F(metric)[position]:.4f}"


def _log_omitted(n: int, what: str, out: Path | None, *files: str) -> None:
    """How many lines are not printed, and where to find them."""
    if n > 0:
        where = f"see {' and '.join(str(out / file) for file in files)}" if out else "--out writes all"
        log(f"{n:,} more {what}{'' if n == 1 else 's'} not printed; {where}")


def _print_groups(groups: RowGroups) -> None:
    rows = [
        [
            str(number),
            f"{group.n_rows:,}",
            _means_text(group.prediction),
            "-" if group.target is None else _means_text(group.target),
            ", ".join(f"{e.dependent} on {e.source} {e.weight:+.2g}" for e in group.contrast.strongest(2)),
            ", ".join(f"{v.field}: {v.value} ({v.share:.0%}, all {v.share_of_all:.0%})" for v in group.values[:3]),
        ]
        for number, group in enumerate(groups.groups)
    ]
    header = ["group", "rows", "predicted", "true", "dependencies that differ most", "values more frequent in it"]
    print_table(header, rows, title="groups of rows with similar dependencies", texts=header[4:])


def _means_text(means: dict[str, float]) -> str:
    """The mean of a value or class; of many classes, the most likely one."""
    name, value = max(means.items(), key=lambda item: item[1])
    return amount(value) if len(means) == 1 else f"{name.removeprefix('probability_')} {value:.2f}"

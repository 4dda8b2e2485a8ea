"""`fielddep explain`: the field dependencies of a model, and of one row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, print_table, say
from fielddep.cli.options import ReadOption, RunArgument, reading_of, refuse_store
from fielddep.errors import TableError, UserError

if TYPE_CHECKING:
    from fielddep.bundle import Bundle
    from fielddep.config import DataConfig
    from fielddep.explain.dependencies import Dependency, Explanation, FieldDependencies

N_STRONGEST = 10
CELL_WIDTH = 8
"""Characters of a cell of the whole table, with the space between cells."""
IMAGES = (".png", ".svg", ".pdf")

TableArgument = Annotated[
    str | None, typer.Argument(help="Table with the row; without it the whole model is shown.", metavar="TABLE")
]
RowOption = Annotated[int, typer.Option("--row", help="Row of TABLE, counted from 0.", min=0, metavar="N")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Heat map (.png, .svg, .pdf) or all numbers (.json).", metavar="FILE")
]


def explain(
    run: RunArgument, table: TableArgument = None, row: RowOption = 0, out: OutOption = None, set_: ReadOption = None
) -> None:
    """Show how the fields of one row of TABLE depend on each other, or those of the whole model."""
    from fielddep.bundle import Bundle
    from fielddep.explain.dependencies import global_dependencies
    from fielddep.run import resolve_bundle

    if out is not None and out.suffix.lower() not in (*IMAGES, ".json"):
        raise UserError(f"an explanation is written to a {', '.join(IMAGES)} or .json file; given {out}")
    if table is not None:
        refuse_store(table, "explain")
    bundle = Bundle.load(resolve_bundle(run))
    model = global_dependencies(bundle)
    if table is None:
        print_model(model)
        write_model(model, out)
    else:
        explanation = explain_row(bundle, table, row, reading_of(bundle, set_))
        print_row(explanation, f"{table}, row {row}")
        write_row(model, explanation, row, out)
    if out is not None:
        say(f"wrote {out}")


def explain_row(bundle: Bundle, table: str, row: int, reading: DataConfig) -> Explanation:
    """The refinement of one row of a table.

    Raises:
        TableError: when the table has fewer rows.
    """
    import polars as pl

    from fielddep.data.readers import collect, read_table
    from fielddep.explain.dependencies import explain_rows

    source = read_table(table, reading, has_target=False)
    found = collect(source.slice(row, 1))
    if found.is_empty():
        n_rows = collect(source.select(pl.len())).item()
        raise TableError(f"--row {row} is asked for, but {table} has {n_rows:,} rows, 0 to {n_rows - 1}")
    return explain_rows(bundle, bundle.encoder.encode(found, first_row=row))


def print_model(model: FieldDependencies) -> None:
    """The strongest entries of W(0) and, where it fits the terminal, all of it."""
    _print_strongest(model.strongest(N_STRONGEST), "strongest dependencies of the model, W(0)")
    if CELL_WIDTH * (len(model.fields) + 2) > console().width:
        return
    rows = [
        [name[: 2 * CELL_WIDTH], *("·" if i == j else f"{w:+.2f}" for j, w in enumerate(weights))]
        for i, (name, weights) in enumerate(zip(model.fields, model.normalized(), strict=True))
    ]
    header = ["", *(name[: CELL_WIDTH - 3] for name in model.fields)]
    print_table(header, rows, title="W(0), largest entry = 1: each column expresses its field by the others")


def print_row(explanation: Explanation, title: str) -> None:
    """The strongest dependencies, the field weights and the dependency loss at every step."""
    _print_strongest(explanation.refined().strongest(N_STRONGEST), f"{title}: strongest refined dependencies")
    values, weights = explanation.values.row(0), explanation.mu_RSF[0, -1] / explanation.sparsity
    rows = [[n, str(v), f"{w:.4f}"] for n, v, w in zip(explanation.fields, values, weights, strict=True)]
    print_table(["field", "value", "mu / lambda"], rows, title="field weights", texts=("value",))
    losses = explanation.loss_RSF[0].sum(axis=1)
    print_table(["step", "loss"], [[str(t), f"{x:.6f}"] for t, x in enumerate(losses)], title="dependency loss")


def write_model(model: FieldDependencies, out: Path | None) -> None:
    """W(0) as a heat map or as JSON."""
    from fielddep.explain.plots import draw_dependencies
    from fielddep.files import write_json

    if out is not None and out.suffix.lower() == ".json":
        write_json(out, {"fields": list(model.fields), "w0": model.matrix_FF.tolist()})
    elif out is not None:
        draw_dependencies([("whole model, W(0)", model, model.fields)], out)


def write_row(model: FieldDependencies, explanation: Explanation, row: int, out: Path | None) -> None:
    """The refinement of a row as a heat map beside that of the model, or as JSON."""
    from fielddep.explain.plots import draw_explanation
    from fielddep.files import write_json

    if out is not None and out.suffix.lower() == ".json":
        write_json(out, {"row": row, **explanation.to_json()})
    elif out is not None:
        draw_explanation(model, explanation, out)


def _print_strongest(found: list[Dependency], title: str) -> None:
    rows = [[entry.dependent, entry.source, f"{entry.weight:+.4f}"] for entry in found]
    print_table(["field", "depends on", "weight"], rows, title=title, texts=("depends on",))

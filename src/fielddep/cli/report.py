"""`fielddep report`: all that is worth knowing of a run, on one page."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import log, print_metrics
from fielddep.cli.options import ReadOption, find_store, reading_of
from fielddep.errors import UserError

if TYPE_CHECKING:
    from fielddep.artifacts.run import Run
    from fielddep.report.facts import MeasuredFacts

logger = logging.getLogger(__name__)

RunArgument = Annotated[Path, typer.Argument(help="A run that fit made.", metavar="RUN")]
TableArgument = Annotated[
    str | None,
    typer.Argument(
        help="Rows with the target to measure the model on: a table, or a store. Of the table that RUN was trained on, "
        "the test rows are taken. Default: the rows that fit measured.",
        metavar="TABLE",
    ),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="The page; default: report.html in RUN.", metavar="FILE")]


def report(run: RunArgument, table: TableArgument = None, out: OutOption = None, set_: ReadOption = None) -> None:
    """Write a page on RUN: data, metrics with intervals, curves, dependencies, importance and rows explained."""
    from fielddep.artifacts.bundle import Bundle
    from fielddep.artifacts.run import REPORT, Run
    from fielddep.report.build import redraw_report, report_table

    found = Run.open(run)
    page = out or found.folder / REPORT
    if page.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"a report is written to an .html file; given {page}; change its ending")
    if table is None and set_:
        raise UserError("--set says how to read TABLE, and none is given; give it, or leave out --set")
    if table is None:
        print_measured(redraw_report(found, page))
    else:
        reading = reading_of(Bundle.load(found.bundle), set_)
        print_measured(report_table(found, find_store(table) or table, page, config=reading))
    log(f"wrote {page}")


def print_measured(measured: MeasuredFacts) -> None:
    """Metrics with their intervals, next to the base rate."""
    title = f"{measured.n_rows:,} {measured.rows}"
    facts = {"model": "value", "95 % from": "low", "to": "high", "by chance up to": "by_chance"}
    columns = {name: _column(measured, fact) for name, fact in facts.items()} | {"base rate": measured.base_rate}
    print_metrics({name: values for name, values in columns.items() if values}, title=title)


def _column(measured: MeasuredFacts, fact: str) -> dict[str, float]:
    values = {name: getattr(found, fact) for name, found in measured.metrics.items()}
    return {name: value for name, value in values.items() if value is not None}


def report_fit(run: Run, *, table: str, quiet: bool = False) -> None:
    """Write the report of a run that was just made; whatever goes wrong with it, the run stays.

    Args:
        run: the run.
        table: what they were read from, to say how to make the report later.
        quiet: say nothing of success.
    """
    from fielddep.report.build import report_training
    from fielddep.report.page import can_draw

    later = shlex.join(["fielddep", "report", str(run.folder), table])
    if not can_draw():
        log(f"no report was written, as Plotly is not installed; pip install 'fielddep[report]', then {later}")
        return
    try:
        page = report_training(run)
    except KeyboardInterrupt:
        log(f"interrupted; the run is whole, only its report is not written. For it: {later}")
    except Exception as error:  # hours of training must not be lost to a page
        logger.warning("the run is whole, but its report could not be written (%s: %s)", type(error).__name__, error)
    else:
        if not quiet:
            log(f"report: {page}")

"""`fielddep report`: everything worth knowing about a run, on one page."""

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

RunArgument = Annotated[Path, typer.Argument(help="Run made by fit.", metavar="RUN")]
TableArgument = Annotated[
    str | None,
    typer.Argument(
        help="Table or store with the target, to measure the model on; if RUN was trained on it, only its test rows "
        "count. Default: the rows that fit measured.",
        metavar="TABLE",
    ),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="HTML file. Default: RUN/report.html.", metavar="FILE")]


def report(run: RunArgument, table: TableArgument = None, out: OutOption = None, set_: ReadOption = None) -> None:
    """Write an HTML report on RUN.

    It shows data, metrics with intervals, curves, dependencies, importance and explained rows.
    """
    from fielddep.artifacts.bundle import Bundle
    from fielddep.artifacts.run import REPORT, Run
    from fielddep.report.build import redraw_report, report_table

    found = Run.open(run)
    page = out or found.folder / REPORT
    if page.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"expected an .html file for the report, given {page}; change its suffix")
    if table is None and set_:
        raise UserError("--set says how to read TABLE, but no TABLE is given. Give it, or drop --set")
    if table is None:
        print_measured(redraw_report(found, page))
    else:
        reading = reading_of(Bundle.load(found.bundle), set_)
        print_measured(report_table(found, find_store(table) or table, page, config=reading))
    log(f"wrote {page}")


def print_measured(measured: MeasuredFacts) -> None:
    """Metrics with their intervals, next to the base rate."""
    facts = {"model": "value", "95 % from": "low", "to": "high", "by chance up to": "by_chance"}
    columns = {
        title: {
            name: getattr(metric, fact)
            for name, metric in measured.metrics.items()
            if getattr(metric, fact) is not None
        }
        for title, fact in facts.items()
    }
    columns["base rate"] = measured.base_rate
    shown = {title: values for title, values in columns.items() if values}
    print_metrics(shown, title=f"{measured.n_rows:,} {measured.rows}")


def report_fit(run: Run, *, table: str, quiet: bool = False) -> None:
    """Write the report of a new run; if that fails, the run stays.

    Args:
        run: the run.
        table: its source, for the command that writes the report later.
        quiet: log failures only.
    """
    from fielddep.report.build import report_training
    from fielddep.report.page import can_draw

    later = shlex.join(["fielddep", "report", str(run.folder), table])
    if not can_draw():
        log(f"no report, because Plotly is not installed; pip install 'fielddep[report]', then {later}")
        return
    try:
        page = report_training(run)
    except KeyboardInterrupt:
        log(f"interrupted; the run is complete, only its report is missing. Write it with {later}")
    except Exception as error:  # hours of training must not be lost to a page
        logger.warning("the run is complete, but its report failed (%s: %s)", type(error).__name__, error)
    else:
        if not quiet:
            log(f"report: {page}")

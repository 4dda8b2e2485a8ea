"""The command line: one file per command. A command parses, calls the library and prints.

Results go to stdout, everything else to stderr. Exit codes: 0; 2 for errors that the user can fix; 1 for a bug; 130
after an interrupt; 141 if the reader of a pipe is gone. Commands import torch and Polars when they run, so `--help` is
fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from fielddep.cli import (
    ablate,
    compare,
    data,
    demo,
    describe,
    encode,
    evaluate,
    explain,
    fit,
    predict,
    report,
    search,
    settings,
)
from fielddep.cli.console import PlainCommand, print_error, warnings_on_stderr
from fielddep.cli.options import COMMAND_LINE, INTERRUPTED
from fielddep.errors import UserError

PIPE_CLOSED = 141

app = typer.Typer(
    name="fielddep",
    help="Learn from large categorical tables, and see which fields depend on which in every row.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("describe", cls=PlainCommand)(describe.describe)
app.command("encode", cls=PlainCommand)(encode.encode)
app.add_typer(data.app, name="data")
app.command("fit", cls=PlainCommand)(fit.fit)
app.command("evaluate", cls=PlainCommand)(evaluate.evaluate)
app.command("predict", cls=PlainCommand)(predict.predict)
app.command("explain", cls=PlainCommand)(explain.explain)
app.command("report", cls=PlainCommand)(report.report)
app.command("search", cls=PlainCommand)(search.search)
app.command("compare", cls=PlainCommand)(compare.compare)
app.command("ablate", cls=PlainCommand)(ablate.ablate)
app.command("settings", cls=PlainCommand)(settings.settings)
app.command("demo", cls=PlainCommand)(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fielddep {metadata.version('fielddep')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        args: words after `fielddep`; default: those of the process.
    """
    COMMAND_LINE.set(tuple(sys.argv[1:] if args is None else args))
    with warnings_on_stderr():
        try:
            app(args=args, prog_name="fielddep")
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):
                return _close_pipe()
            return _flush(end.code if isinstance(end.code, int) else 0)
        except UserError as error:
            print_error(str(error))
            return _flush(2)
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0  # pragma: no cover - typer always ends with SystemExit


def _flush(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _close_pipe()
    return code


def _close_pipe() -> int:
    """Send what is still buffered nowhere; Python would complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return PIPE_CLOSED

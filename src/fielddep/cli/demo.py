"""`fielddep demo`: everything on real data, flights out of New York in 2013."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fielddep.cli.console import console, log, print_metrics, print_table
from fielddep.cli.fit import run_fit
from fielddep.cli.options import ForceOption, RunOutOption
from fielddep.config.settings import Config

if TYPE_CHECKING:
    import polars as pl

    from fielddep.artifacts.run import Run
    from fielddep.encoding.unknown import UnknownReport


def demo(out: RunOutOption = Path("demo-run"), force: ForceOption = False) -> None:
    """Describe, train, compare, predict and explain real flights.

    The question: will a flight arrive more than 15 minutes late?
    """
    from fielddep.artifacts.run import RUN
    from fielddep.datasets.flights import load_flights
    from fielddep.training.trees import check_installed

    RUN.check(out, force=force)
    check_installed("lightgbm")
    flights = load_flights()
    with tempfile.TemporaryDirectory(prefix="fielddep-demo-") as folder:
        table = Path(folder) / "flights.parquet"
        flights.write_parquet(table)
        show_table(flights)
        run = train(table, out, force=force)
        compare(run)
        new_flights = Path(folder) / "new-flights.csv"
        unusual_flights(flights).write_csv(new_flights)
        predict_unusual(run, new_flights)
        explain_model(run, new_flights)


def show_table(flights: pl.DataFrame) -> None:
    """What the table holds."""
    from fielddep.cli.describe import print_description
    from fielddep.datasets.flights import TARGET
    from fielddep.encoding.describe import describe

    _headline("1. describe", f"fielddep describe flights.parquet --target {TARGET}")
    print_description("flights.parquet", describe(flights, Config().replace({"data.target": TARGET})))


def train(table: Path, out: Path, *, force: bool) -> Run:
    """A model with default settings."""
    from fielddep.datasets.flights import TARGET

    # Threads that wait for each other on a busy machine can take ten times as long as one thread alone.
    config = Config().replace({"data.target": TARGET, "train.threads": 1})
    command = f"fielddep fit flights.parquet --target {TARGET} --out {out} --set train.threads=1"
    _headline("2. fit, with default settings on one thread", command)
    run = run_fit(str(table), config, out, force=force)
    log(f"saved in {run.folder}")
    return run


def compare(run: Run) -> None:
    """Test metrics next to LightGBM and the base rate, all on the same rows."""
    from fielddep.config.trees import LightGBMConfig
    from fielddep.training.fit import fit

    log("training LightGBM on the same rows ...")
    assert run.trained is not None
    prepared = run.trained.prepared
    trees = fit(replace(prepared, config=replace(prepared.config, model=LightGBMConfig())))
    columns = {
        "fielddep": run.metrics["test"],
        "LightGBM": trees.metrics["test"],
        "base rate": run.metrics["test_base_rate"],
    }
    _headline("3. compare, test rows", "both with default settings, stopped on the same validation rows")
    print_metrics(columns)


def unusual_flights(flights: pl.DataFrame) -> pl.DataFrame:
    """A flight as it is, then with an unseen carrier, with empty cells, with both, and with unseen values only."""
    import polars as pl

    from fielddep.datasets.flights import FIELDS

    row = flights.filter(pl.col("late") == 1).head(1).select(FIELDS).to_dicts()[0]
    changes: list[dict[str, str | None]] = [
        {},
        {"carrier": "ZZ", "tailnum": "N0NEW"},
        {"tailnum": None, "flight": None},
        {"carrier": "ZZ", "hour": None, "dest": None},
        dict.fromkeys(FIELDS, "never seen"),
    ]
    return pl.DataFrame([{**row, **change} for change in changes], schema=dict.fromkeys(FIELDS, pl.String))


def predict_unusual(run: Run, table: Path) -> None:
    """Unusual rows with their predictions."""
    from fielddep.cli.options import open_predictor, reading_of
    from fielddep.cli.predict import log_unknown, predicted_frames
    from fielddep.datasets.flights import FIELDS

    _headline("4. predict rows with unseen carriers and empty cells", f"fielddep predict {run.folder} new-flights.csv")
    predictor = open_predictor(run.folder, "cpu")
    reports: list[UnknownReport] = []
    reading = reading_of(predictor.bundle, None)
    frames = list(predicted_frames(predictor, str(table), reading, list(FIELDS), reports))
    rows = [[*(str(v) for v in row[:-2]), f"{row[-1]:.3f}"] for frame in frames for row in frame.iter_rows()]
    print_table([*FIELDS, "late", "probability"], rows, texts=FIELDS)
    log_unknown(reports[0])


def explain_model(run: Run, table: Path) -> None:
    """The strongest dependencies of the model, and one flight explained, with pictures."""
    from fielddep.cli.explain import explain

    out = run.folder / "explanation"
    _headline("5. explain", f"fielddep explain {run.folder} new-flights.csv --rows 0 --sample 0 --out {out}")
    explain(run.folder)
    explain(run.folder, str(table), rows="0", sample=0, out=out)
    console().print(f"explanation: {out}\nrun: {run.folder}", soft_wrap=True)


def _headline(title: str, text: str) -> None:
    stream = console()
    stream.print(f"\n{title}", style="bold")
    stream.print(f"  {text}", style="dim", soft_wrap=True)

"""Reports of runs: measured when a run is made, measured on a table later, or drawn again from their numbers.

report.json   the numbers
report.html   the page
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl
import torch

from fielddep.bundle import MANIFEST, Bundle
from fielddep.config import Config, DataConfig
from fielddep.data.encoded import EncodedTable
from fielddep.data.readers import collect, read_table
from fielddep.data.row_sample import RowSample, sample_rows, spread_rows
from fielddep.data.splits import split_rows
from fielddep.data.store.loader import Rows, StorePart
from fielddep.data.store.store import Store
from fielddep.environment import environment
from fielddep.errors import UserError
from fielddep.explain.dependencies import global_dependencies, learns_dependencies
from fielddep.explain.intervals import MAX_ROWS
from fielddep.explain.page import write_page
from fielddep.explain.report import DataFacts, DependencyFacts, MeasuredFacts, Report, TrainingFacts
from fielddep.explain.report_data import data_facts, leaking_fields
from fielddep.explain.report_measured import measured_facts
from fielddep.explain.report_training import training_facts
from fielddep.files import write_text
from fielddep.fitting import TrainingData, torch_threads
from fielddep.predictor import ALL, Predictor, evaluated_part
from fielddep.run import REPORT, REPORT_NUMBERS, REQUEST, Run
from fielddep.training.metrics import Metrics, base_rate_metrics
from fielddep.training.objective import base_output

log = logging.getLogger(__name__)

LEAK_ROWS = 100_000
"""Training rows at most that are looked at for leaks."""


def report_training(run: Run, data: TrainingData) -> Path:
    """Measure a run on the rows it was made from, and write numbers and page into it.

    Args:
        run: the run.
        data: its rows; of those for test, or for validation where there are none, the model is measured.
    """
    with torch_threads(run.config.train.threads):
        report = _training_report(run, data)
    _keep(run, report)
    write_page(report, run.folder / REPORT)
    return run.folder / REPORT


def report_table(run: Run, table: str | Store, out: Path, *, config: DataConfig | None = None) -> MeasuredFacts:
    """Measure a run on a table or store that holds the target, and write the page.

    The table that the run was made from is recognised: then its test rows are taken, and the numbers are kept in the
    run. Of another store the test rows are taken, of another table all rows.

    Args:
        run: the run.
        table: file, folder or glob of a table, or a store.
        out: the page.
        config: how to read a table, where it is not read as that of the training.
    """
    bundle = Bundle.load(run.bundle, device=run.config.train.device)
    data = _own_data(run, bundle, table, config)
    with torch_threads(run.config.train.threads):
        if data is not None:
            report = _training_report(run, data)
            _keep(run, report)
        else:
            report = _foreign_report(run, bundle, table, config)
    write_page(report, out)
    return report.measured


def redraw_report(run: Run, out: Path) -> MeasuredFacts:
    """Write the page from the numbers that a run keeps.

    Raises:
        UserError: when it keeps none, or those of another model.
    """
    report = read_report(run)
    if report is None:
        raise UserError(
            f"{run.folder} keeps no numbers for a report of this model; give the table to measure it on: "
            f"fielddep report {run.folder} TABLE"
        )
    write_page(report, out)
    return report.measured


def read_report(run: Run) -> Report | None:
    """The numbers of the report of a run; None where there are none, or those of a model that is no longer there.

    Raises:
        UserError: when they cannot be read.
    """
    path = run.folder / REPORT_NUMBERS
    if not path.is_file():
        return None
    try:
        report = Report.from_json(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    return report if report.training.bundle == _checksum(run) else None


def _keep(run: Run, report: Report) -> None:
    # In one line: indented, the matrices of many fields would be a number a line.
    write_text(run.folder / REPORT_NUMBERS, json.dumps(report.to_json(), ensure_ascii=False, separators=(",", ":")))


def _training_report(run: Run, data: TrainingData) -> Report:
    bundle = Bundle.load(run.bundle, device=run.config.train.device)
    part = "test" if "test" in data.parts else "validation"
    sample = sample_rows(data.parts[part].blocks(), MAX_ROWS)
    metrics = run.metrics
    measured = measured_facts(
        bundle,
        sample,
        rows=f"{part} rows",
        metrics=metrics[part],
        base_rate=metrics[f"{part}_base_rate"],
        base_of="training rows",
        base_C=data.base_C,
    )
    sizes = {name: len(rows) for name, rows in data.parts.items()}
    training = _training_facts(run, bundle, sizes, data.base_C)
    leaks = _leaks(bundle, data.parts["train"])
    facts = data_facts(bundle.encoder, _rows(sample), rows=f"{part} rows", leaks=leaks, warnings=data.warnings)
    return _report(run, bundle, training, facts, measured)


def _foreign_report(run: Run, bundle: Bundle, table: str | Store, config: DataConfig | None) -> Report:
    """A report on rows that the run was not made from."""
    predictor = Predictor(bundle, device=run.config.train.device)
    part = evaluated_part(table)
    metrics, sample, targets = _measure(predictor, table, config, part)
    name = table.folder.name if isinstance(table, Store) else Path(table).name
    rows = f"{'' if part == ALL else f'{part} '}rows of {name}"
    kept = _kept_report(run)
    training = _training_facts(run, bundle, {}, None) if kept is None else kept.training
    base_C = torch.tensor(training.base) if training.base else base_output(predictor.target, targets)
    measured = measured_facts(
        bundle,
        sample,
        rows=rows,
        metrics=metrics,
        base_rate=base_rate_metrics(predictor.target, base_C, targets),
        base_of="training rows" if training.base else "same rows",
        base_C=base_C,
    )
    leaks = () if kept is None else kept.data.leaks
    facts = data_facts(bundle.encoder, _rows(sample), rows=rows, leaks=leaks)
    return _report(run, bundle, training, facts, measured)


def _measure(
    predictor: Predictor, table: str | Store, config: DataConfig | None, part: str
) -> tuple[dict[str, float], RowSample, EncodedTable]:
    """Metrics of all rows, a sample of them, and targets and weights of all without their fields, in one pass."""
    metrics, sample = Metrics(predictor.target), RowSample(MAX_ROWS)
    targets, weights = [], []
    for chunk, _ in predictor.encoded(table, config, with_target=True, part=part):
        assert chunk.target_R is not None
        metrics.update(predictor.logits(chunk).cpu(), chunk.target_R, chunk.weight_R)
        sample.add(chunk)
        targets.append(chunk.target_R)
        weights += [] if chunk.weight_R is None else [chunk.weight_R]
    some = _rows(sample)
    n_rows = sample.n_seen
    known = replace(
        some,
        ids_RF=some.ids_RF.new_empty((n_rows, 0)),
        numbers_RN=some.numbers_RN.new_empty((n_rows, 0)),
        target_R=torch.cat(targets),
        weight_R=torch.cat(weights) if weights else None,
    )
    return metrics.result(), sample, known


def _kept_report(run: Run) -> Report | None:
    """What `read_report` gives; numbers that cannot be read are warned of and done without."""
    try:
        return read_report(run)
    except UserError as error:
        log.warning("%s; the report is made without what they tell of the training", error)
        return None


def _report(run: Run, bundle: Bundle, training: TrainingFacts, data: DataFacts, measured: MeasuredFacts) -> Report:
    dependencies = None
    if learns_dependencies(bundle):
        found = global_dependencies(bundle)
        dependencies = DependencyFacts(fields=found.fields, matrix=tuple(map(tuple, found.matrix_FF.tolist())))
    return Report(
        made=datetime.now().astimezone().isoformat(timespec="minutes"),
        training=training,
        data=data,
        history=tuple(run.history),
        measured=measured,
        dependencies=dependencies,
    )


def _training_facts(run: Run, bundle: Bundle, parts: dict[str, int], base_C: torch.Tensor | None) -> TrainingFacts:
    return training_facts(
        bundle,
        run=str(run.folder),
        checksum=_checksum(run),
        environment=run.environment,
        asked=Config.from_toml(run.folder / REQUEST),
        parts=parts,
        base_C=base_C,
    )


def _leaks(bundle: Bundle, rows: Rows) -> list[str]:
    sample = sample_rows(spread_rows(rows, 2 * LEAK_ROWS), LEAK_ROWS).table
    return [] if sample is None else leaking_fields(bundle.encoder, sample)


def _rows(sample: RowSample) -> EncodedTable:
    if sample.table is None or not len(sample.table):
        raise UserError("a report needs rows to measure the model on; given none; give a table with rows")
    return sample.table


def _checksum(run: Run) -> str:
    manifest = json.loads((run.bundle / MANIFEST).read_text("utf-8"))
    return str(manifest["sha256"])


def _own_data(run: Run, bundle: Bundle, table: str | Store, config: DataConfig | None) -> TrainingData | None:
    """The rows of the run, where the table or store is the one that it was made from."""
    source = run.environment["source"]
    if isinstance(table, Store):
        if environment(table)["source"]["fingerprint"] != source["fingerprint"]:
            return None
        stored = {name: StorePart(store=table, part=name) for name, n_rows in table.n_rows_of.items() if n_rows}
        return TrainingData(config=bundle.config, encoder=bundle.encoder, parts=stored)
    lazy = read_table(table, _reading(run, config))
    if lazy.collect_schema().names() != source["columns"] or collect(lazy.select(pl.len())).item() != source["rows"]:
        return None
    frame = collect(lazy)
    if environment(frame)["source"]["fingerprint"] != source["fingerprint"]:
        log.warning(
            "%s has the columns and the number of rows of the training table, but other values or another order of "
            "rows (by fingerprint); all its rows are measured, also those that the model may have been trained on",
            table,
        )
        return None
    return _split_again(bundle, frame)


def _reading(run: Run, config: DataConfig | None) -> DataConfig:
    """How the training table was read, unless told otherwise."""
    own = run.config.data
    if config is None:
        return own
    return replace(own, format=config.format, delimiter=config.delimiter, encoding=config.encoding)


def _split_again(bundle: Bundle, table: pl.DataFrame) -> TrainingData:
    """The parts of the training table, which follow from the settings."""
    split = split_rows(table, bundle.config.split, bundle.config.data.target)
    rows = {"train": split.train, "validation": split.validation, "test": split.test}
    parts = {
        name: bundle.encoder.encode(table[numbers], with_target=True, handle_unknown="rare")
        for name, numbers in rows.items()
        if len(numbers)
    }
    return TrainingData(config=bundle.config, encoder=bundle.encoder, parts=parts, warnings=split.warnings)

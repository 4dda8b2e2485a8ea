"""Reports of runs: measured when a run is made, measured on a table later, or drawn again from their numbers.

report.json   the numbers
report.html   the page
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl
import torch

from fielddep.artifacts.bundle import MANIFEST, Bundle
from fielddep.artifacts.predictor import ALL, Predictor, default_part
from fielddep.artifacts.run import REPORT, REPORT_NUMBERS, REQUEST, Run, environment
from fielddep.config.settings import Config, DataConfig
from fielddep.encoding.interning import code_table
from fielddep.encoding.rows import EncodedRows, RowSample, sample_rows
from fielddep.encoding.split import SPLIT_VERSION, class_warnings, plan_split
from fielddep.errors import UserError
from fielddep.explain.dependencies import global_dependencies, learns_dependencies
from fielddep.report.data import data_facts, leaking_fields, training_facts
from fielddep.report.facts import DataFacts, DependencyFacts, MeasuredFacts, Report, TrainingFacts
from fielddep.report.intervals import MAX_ROWS
from fielddep.report.measured import measured_facts
from fielddep.report.page import write_page
from fielddep.store.shards import MemoryShards, StorePart
from fielddep.store.store import Store
from fielddep.tables.files import write_text
from fielddep.tables.row_stream import open_rows, read_table
from fielddep.training.fit import torch_threads
from fielddep.training.metrics import base_output, base_rate_metrics, measure
from fielddep.training.prepare import Prepared

log = logging.getLogger(__name__)

LEAK_ROWS = 100_000
"""Training rows at most that are looked at for leaks."""


def report_training(run: Run) -> Path:
    """Measure a run that was just trained on its test rows, or its validation rows where there are none.

    Numbers and page are written into the run; nothing is read back from it.
    """
    assert run.trained is not None
    with torch_threads(run.config.train.threads):
        report = _training_report(run, Bundle.of(run.trained), run.trained.prepared)
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
            report = _training_report(run, bundle, data)
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
            f"{run.folder} has no report.json of its current model. Give a table to measure it on: "
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


def _training_report(run: Run, bundle: Bundle, data: Prepared) -> Report:
    part = "test" if "test" in data.parts else "validation"
    sample = sample_rows(data.parts[part].chunks(), MAX_ROWS)
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
    facts = data_facts(bundle.encoder, _rows(sample), rows=f"{part} rows", leaks=leaks, warnings=data.store.warnings)
    return _report(run, bundle, training, facts, measured)


def _foreign_report(run: Run, bundle: Bundle, table: str | Store, config: DataConfig | None) -> Report:
    """A report on rows that the run was not made from."""
    predictor = Predictor(bundle, device=run.config.train.device)
    part = default_part(table)
    metrics, sample, targets = _measure(predictor, table, config, part)
    name = table.folder.name if isinstance(table, Store) else Path(table).name
    rows = f"{'' if part == ALL else f'{part} '}rows of {name}"
    kept = _kept_report(run)
    training = _training_facts(run, bundle, {}, None) if kept is None else kept.training
    base_C = torch.tensor(training.base) if training.base else base_output(predictor.target, [targets])
    measured = measured_facts(
        bundle,
        sample,
        rows=rows,
        metrics=metrics,
        base_rate=base_rate_metrics(predictor.target, base_C, [targets]),
        base_of="training rows" if training.base else "same rows",
        base_C=base_C,
    )
    leaks = () if kept is None else kept.data.leaks
    facts = data_facts(bundle.encoder, _rows(sample), rows=rows, leaks=leaks)
    return _report(run, bundle, training, facts, measured)


def _measure(
    predictor: Predictor, table: str | Store, config: DataConfig | None, part: str
) -> tuple[dict[str, float], RowSample, EncodedRows]:
    """Metrics of all rows, a sample of them, and targets and weights of all without their fields, in one pass."""
    sample = RowSample(MAX_ROWS)
    targets: list[EncodedRows] = []

    def chunks() -> Iterator[EncodedRows]:
        for chunk, _ in predictor.encoded(table, config, with_target=True, part=part):
            sample.add(chunk)
            targets.append(chunk.with_arrays(ids=chunk.ids_RF[:, :0], numbers=None))
            yield chunk

    metrics = measure(predictor.logits, predictor.target, chunks()).metrics
    _rows(sample)  # refuses a table without rows
    return metrics, sample, EncodedRows.concat(targets)


def _kept_report(run: Run) -> Report | None:
    """What `read_report` gives; None, with a warning, where the numbers cannot be read."""
    try:
        return read_report(run)
    except UserError as error:
        log.warning("%s; the report is made without them", error)
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


def _leaks(bundle: Bundle, rows: StorePart) -> list[str]:
    sample = sample_rows(rows.spread(2 * LEAK_ROWS), LEAK_ROWS).table
    return [] if sample is None else leaking_fields(bundle.encoder, sample)


def _rows(sample: RowSample) -> EncodedRows:
    if sample.table is None or not len(sample.table):
        raise UserError("a report needs rows to measure the model on, and the table has none")
    return sample.table


def _checksum(run: Run) -> str:
    manifest = json.loads((run.bundle / MANIFEST).read_text("utf-8"))
    return str(manifest["sha256"])


def _own_data(run: Run, bundle: Bundle, table: str | Store, config: DataConfig | None) -> Prepared | None:
    """The rows of the run, where the table or store is the one that it was made from."""
    source = run.environment["source"]
    if isinstance(table, Store):
        if environment(table)["source"]["fingerprint"] != source["fingerprint"]:
            return None
        return Prepared.of(table, bundle.config)
    stream = open_rows(table, _reading(run, config))
    if stream.schema.names() != source["columns"]:
        return None
    frame = read_table(stream)
    if len(frame) != source["rows"]:
        return None
    if environment(frame)["source"]["fingerprint"] != source["fingerprint"]:
        log.warning(
            "%s looks like the training table, but its values or their order differ (by fingerprint); all its rows are "
            "measured, including any that the model was trained on",
            table,
        )
        return None
    if run.environment.get("split_version") != SPLIT_VERSION:
        raise UserError(
            f"{table} is the training table of {run.folder}, split by another version of fielddep, so its test rows "
            "are unknown. Give rows that the model was not trained on, or train again"
        )
    return _split_again(bundle, frame)


def _reading(run: Run, config: DataConfig | None) -> DataConfig:
    """How the training table was read, unless the settings differ."""
    own = run.config.data
    if config is None:
        return own
    return replace(own, format=config.format, delimiter=config.delimiter, encoding=config.encoding)


def _split_again(bundle: Bundle, table: pl.DataFrame) -> Prepared:
    """The parts of the training table, which follow from the settings."""
    config, encoder = bundle.config, bundle.encoder
    coded = code_table(table, config)
    split = plan_split(coded, config.split, config.data.target)
    parts = split.parts_of(coded, 0, len(table))
    rows = encoder.encode(table, with_target=True, handle_unknown="rare")
    assert encoder.schema.target is not None
    store = Store(
        encoder=encoder,
        config=config,
        shards=MemoryShards(rows=rows, row_parts=parts),
        warnings=class_warnings(coded, encoder.schema.target, lambda start, stop: parts[start:stop]),
    )
    return Prepared.of(store, config)

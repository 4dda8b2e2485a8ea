"""Reports of runs: measured after training, measured later on a table, or drawn again from stored numbers.

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

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import ALL, Predictor, default_part
from fielddep.artifacts.run import REPORT, REPORT_NUMBERS, Run, environment
from fielddep.config.data import DataConfig
from fielddep.encoding.interning import code_table
from fielddep.encoding.parts import class_warnings
from fielddep.encoding.rows import EncodedRows, RowSample, list_name, sample_rows
from fielddep.encoding.split import SPLIT_VERSION, plan_split
from fielddep.encoding.with_target import rows_with_target
from fielddep.errors import UserError
from fielddep.explain.dependencies import global_dependencies, learns_dependencies
from fielddep.report.data import data_facts, leaking_fields, training_facts
from fielddep.report.facts import DataFacts, DependencyFacts, MeasuredFacts, Report, TrainingFacts
from fielddep.report.intervals import MAX_ROWS
from fielddep.report.measured import measured_facts
from fielddep.report.page import write_page
from fielddep.store.shards import MemoryShards
from fielddep.store.store import Store
from fielddep.tables.files import MANIFEST, write_text
from fielddep.tables.row_stream import RowStream, open_rows
from fielddep.training.fit import torch_threads
from fielddep.training.metrics import base_output, base_rate_metrics, measure
from fielddep.training.prepare import Prepared

log = logging.getLogger(__name__)

LEAK_ROWS = 100_000
"""Training rows that are searched for leaks, at most."""


def report_training(run: Run) -> Path:
    """Measure a run right after training, on its test rows or else its validation rows.

    Numbers and page are written into the run; nothing is read back from it.
    """
    assert run.trained is not None
    with torch_threads(run.config.train.threads):
        report = _training_report(run, Bundle.of(run.trained), run.trained.prepared)
    _keep(run, report)
    write_page(report, run.folder / REPORT)
    return run.folder / REPORT


SEEN = (
    "the model was refitted on the validation rows: the metrics are those of the training before, but curves and "
    "explanations of these rows look better than on new ones; hold out test rows (split.test)"
)
"""Warning for a refitted model without test rows."""


def report_table(run: Run, table: str | Store, out: Path, *, config: DataConfig | None = None) -> MeasuredFacts:
    """Measure a run on a table or store with the target, and write the page.

    The training table is recognised; then its test rows are measured, and the numbers are kept in the run. Otherwise,
    all rows of a table or the test rows of a store are measured.

    Args:
        run: the run.
        table: file, folder or glob of a table, or a store.
        out: the page.
        config: how to read the table; by default like the training table.
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
    """Write the page from the numbers in a run.

    Raises:
        UserError: if the run has no numbers of its current model.
    """
    report = read_report(run)
    if report is None:
        raise UserError(
            f"{run.folder} has no report.json of its current model. Give a table to measure the model on: "
            f"fielddep report {run.folder} TABLE"
        )
    write_page(report, out)
    return report.measured


def read_report(run: Run) -> Report | None:
    """The numbers in a run; None if there are none, or if they belong to an earlier model.

    Raises:
        UserError: if they cannot be read.
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
    # On one line, because indentation would put every number of a matrix on its own line.
    write_text(run.folder / REPORT_NUMBERS, json.dumps(report.to_json(), ensure_ascii=False, separators=(",", ":")))


def _training_report(run: Run, bundle: Bundle, data: Prepared) -> Report:
    part = "test" if "test" in data.parts else "validation"
    chunks = data.parts[part].chunks()
    # A store knows the evidence of the first training, and a refitted model that of the second.
    sample = sample_rows(map(bundle.encoder.as_new, chunks) if part == "test" else chunks, MAX_ROWS)
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
    training = training_facts(run, bundle, checksum=_checksum(run), parts=sizes, base_C=data.base_C)
    train = sample_rows(data.parts["train"].spread(2 * LEAK_ROWS), LEAK_ROWS).table
    leaks = [] if train is None else leaking_fields(bundle.encoder, train)
    seen = (SEEN,) if part == "validation" and run.config.train.refit else ()
    warnings = (*data.store.warnings, *seen)
    facts = data_facts(bundle.encoder, sample.rows, rows=measured.rows, leaks=leaks, warnings=warnings)
    return _report(run, bundle, training, facts, measured)


def _foreign_report(run: Run, bundle: Bundle, table: str | Store, config: DataConfig | None) -> Report:
    """A report on rows that are not those of the training table."""
    predictor = Predictor(bundle, device=run.config.train.device)
    part = default_part(table, refit=bundle.config.train.refit)
    metrics, sample, targets = _measure(predictor, table, config, part)
    name = table.folder.name if isinstance(table, Store) else Path(table).name
    rows = f"{'' if part == ALL else f'{part} '}rows of {name}"
    kept = _kept_report(run)
    training = training_facts(run, bundle, checksum=_checksum(run)) if kept is None else kept.training
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
    facts = data_facts(bundle.encoder, sample.rows, rows=rows, leaks=leaks)
    return _report(run, bundle, training, facts, measured)


def _measure(
    predictor: Predictor, table: str | Store, config: DataConfig | None, part: str
) -> tuple[dict[str, float], RowSample, EncodedRows]:
    """Metrics of all rows, a sample of them, and all targets and weights without the fields, in one pass."""
    sample = RowSample(MAX_ROWS)
    targets: list[EncodedRows] = []

    def chunks() -> Iterator[EncodedRows]:
        for chunk, _ in predictor.encoded(table, config, with_target=True, part=part):
            sample.add(chunk)
            lists = dict.fromkeys(map(list_name, chunk.layout.lists))
            targets.append(chunk.with_arrays(ids=chunk.ids_RF[:, :0], numbers=None, **lists))
            yield chunk

    metrics = measure(predictor.logits, predictor.target, chunks()).metrics
    if not sample.n_seen:
        raise UserError("a report needs rows to measure the model on, but the table has none")
    return metrics, sample, EncodedRows.concat(targets)


def _kept_report(run: Run) -> Report | None:
    """`read_report`, with a warning instead of an error if the numbers cannot be read."""
    try:
        return read_report(run)
    except UserError as error:
        log.warning("%s; the report does not use it", error)
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


def _checksum(run: Run) -> str:
    manifest = json.loads((run.bundle / MANIFEST).read_text("utf-8"))
    return str(manifest["sha256"])


def _own_data(run: Run, bundle: Bundle, table: str | Store, config: DataConfig | None) -> Prepared | None:
    """The rows of the training, if the table or store is the one that was used for it."""
    source = run.environment["source"]
    if isinstance(table, Store):
        if environment(table)["source"]["fingerprint"] != source["fingerprint"]:
            return None
        return Prepared.of(table, bundle.config)
    frame = training_table(run, table, config)
    if frame is None:
        return None
    if run.environment.get("split_version") != SPLIT_VERSION:
        raise UserError(
            f"{table} is the training table of {run.folder}, but another version of fielddep split it, so its test "
            "rows are unknown. Give rows that the model was not trained on, or train again"
        )
    return _split_again(bundle, frame)


def training_table(run: Run, table: str, config: DataConfig | None = None) -> pl.DataFrame | None:
    """The rows of a table, if they are the ones that a run was trained on; None for any other table.

    Never reads more rows than the training table has. Warns of a table that has the same columns and number of rows.

    Args:
        run: the run.
        table: file, folder or glob.
        config: how to read the table; by default like the training table.
    """
    source = run.environment["source"]
    stream = open_rows(table, _reading(run, config))
    if stream.schema.names() != source["columns"]:
        return None
    frame = _read_rows(stream, source["rows"])
    if frame is None:
        return None
    if environment(frame)["source"]["fingerprint"] != source["fingerprint"]:
        log.warning(
            "%s looks like the training table, but its fingerprint shows other values or another order; all rows are "
            "measured, including any that the model was trained on",
            table,
        )
        return None
    return frame


def _read_rows(stream: RowStream, n_rows: int) -> pl.DataFrame | None:
    """All rows of a stream that has this many; None if it has more or fewer."""
    frames: list[pl.DataFrame] = []
    n_read = 0
    for rows, _ in stream.chunks(stream.schema.names()):
        n_read += len(rows)
        if n_read > n_rows:
            return None
        frames.append(rows)
    return pl.concat(frames) if frames and n_read == n_rows else None


def _reading(run: Run, config: DataConfig | None) -> DataConfig:
    """How to read a table: like the training table, but in the given format."""
    own = run.config.data
    if config is None:
        return own
    return replace(own, format=config.format, delimiter=config.delimiter, encoding=config.encoding)


def _split_again(bundle: Bundle, table: pl.DataFrame) -> Prepared:
    """The training table with its parts, which follow from the settings."""
    config, encoder = bundle.config, bundle.encoder
    table = rows_with_target(table, config.data)
    coded = code_table(table, config)
    split = plan_split(coded, config.split, config.data.target)
    parts = split.parts_of(coded, 0, len(table))
    rows, _ = encoder.encode(table, with_target=True, handle_unknown="rare")
    assert encoder.schema.target is not None
    store = Store(
        encoder=encoder,
        config=config,
        shards=MemoryShards(rows=rows, row_parts=parts),
        warnings=class_warnings(coded, encoder.schema.target, lambda start, stop: parts[start:stop]),
    )
    return Prepared.of(store, config)

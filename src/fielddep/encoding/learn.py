"""Learning: from a coded table and the part of every row to an encoder. Nothing else makes one.

Almost everything is learned from the different values and the rows of each. A measure with too many different numbers
is read chunk by chunk: sums are exact, quantiles come from a sample. An edge that is a quantile of two million numbers
drawn at random has, among all numbers, a rank that is off by at most 0.2 % of them with probability 1 - 1e-6
(inequality of Dvoretzky, Kiefer and Wolfowitz).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.settings import Config, DataConfig, for_field
from fielddep.encoding.code_tables import ColumnTables
from fielddep.encoding.coded import CodedTable
from fielddep.encoding.crosses import Cross, Ids, PairCounts, find_crosses
from fielddep.encoding.encoder import Encoder, cross_positions
from fielddep.encoding.field import FieldEncoder, field_texts
from fielddep.encoding.numbers import Moments, QuantileBins, ScaledNumbers, default_n_bins, number_counts
from fielddep.encoding.schema import Field, build_schema, candidate_names, make_field, plan_field
from fielddep.encoding.split import PART_NAMES, ReadParts
from fielddep.encoding.target import Target, infer_target, missing_target
from fielddep.encoding.values import as_number, canonical, try_numbers
from fielddep.encoding.vocabulary import Vocabulary, count_values
from fielddep.errors import SchemaError

"""Gives the part of each row from a first to a last one: its place in `PART_NAMES`."""
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


# --- measures kept as numbers ---------------------------------------------------------------------------------


def _learn_numbers(table: CodedTable, field: Field, config: DataConfig, parts: ReadParts, n_train: int) -> FieldEncoder:
    """What is learned of a column of mode "numbers"."""
    codec: Vocabulary | ScaledNumbers | QuantileBins
    if field.numeric == "scale":
        moments = _moments(table, field.name, parts)
        codec = ScaledNumbers.of(moments, n_train - moments.n_rows)
    elif field.numeric == "quantile":
        codec = _quantile_bins(table, field.name, parts, config.n_bins or default_n_bins(n_train))
    else:
        codec = _vocabulary(table, field, config, parts)
    return FieldEncoder(field=field, codec=codec, missing_values=config.missing_values)


def sample_numbers(table: CodedTable, name: str, parts: ReadParts | None) -> Floats:
    """About `sample_rows` known numbers of training rows, or of all; all of them where there are no more."""
    n_known = sum(len(numbers) - numbers.null_count() for numbers in _numbers(table, name, parts))
    share = table.sizes.sample_rows / max(n_known, 1)
    found = []
    for chunk, numbers in enumerate(_numbers(table, name, parts)):
        known = numbers.drop_nulls().to_numpy()
        if share < 1:
            known = known[np.random.default_rng([0, chunk]).random(len(known)) < share]
        found.append(known)
    return np.concatenate([np.empty(0), *found])


def _moments(table: CodedTable, name: str, parts: ReadParts) -> Moments:
    moments = Moments()
    for numbers in _numbers(table, name, parts):
        moments = moments.merge(Moments.of(numbers.drop_nulls().to_numpy()))
    return moments


def _numbers(table: CodedTable, name: str, parts: ReadParts | None) -> Iterator[pl.Series]:
    for start, stop in table.chunks():
        numbers = table.numbers(name, start, stop)
        yield numbers if parts is None else numbers.filter(pl.Series(parts(start, stop) == 0))


def _quantile_bins(table: CodedTable, name: str, parts: ReadParts, n_bins: int) -> QuantileBins:
    distinct, counts = np.unique(sample_numbers(table, name, parts), return_counts=True)
    bins = QuantileBins.from_counts(distinct, counts, 1, n_bins)
    counts = np.zeros(len(bins.counts), dtype=np.int64)
    for numbers in _numbers(table, name, parts):
        counts += np.bincount(bins.encode(numbers), minlength=len(counts))
    return QuantileBins(edges=bins.edges, counts=counts)


def _vocabulary(table: CodedTable, field: Field, config: DataConfig, parts: ReadParts) -> Vocabulary:
    counted = [
        count_values(field_texts(field, numbers, config.missing_values))
        for numbers in _numbers(table, field.name, None if config.counts_from == "all" else parts)
    ]
    return Vocabulary.from_counts(
        pl.concat([values for values, _, _ in counted]),
        pl.concat([counts for _, counts, _ in counted]),
        sum(n_missing for _, _, n_missing in counted),
        for_field(config.min_count, field.name, 1),
        keep_rare=config.handle_unknown == "error",
    )


# --- counts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class RowCounts:
    """Rows of each code, for every column that is kept as codes.

    Attributes:
        train: of training rows.
        all: of all rows.
        by_part: of each part, shape (codes, 3); for the weight only.
    """

    train: dict[str, Counts]
    all: dict[str, Counts]
    by_part: dict[str, Counts]


def count_codes(table: CodedTable, parts: ReadParts, names_by_part: Sequence[str]) -> RowCounts:
    """Count the rows of each code in one pass."""
    names = [column.name for column in table.columns.values() if column.mode == "codes"]
    every = {name: np.zeros(len(table.columns[name].values), dtype=np.int64) for name in names}
    held_out = {name: np.zeros_like(counts) for name, counts in every.items()}
    by_part = {
        name: np.zeros((len(every[name]), len(PART_NAMES)), dtype=np.int64) for name in names_by_part if name in every
    }
    for start, stop in table.chunks():
        parts_R = parts(start, stop)
        rows = np.flatnonzero(parts_R)
        for name in names:
            codes_R = table.codes(name, start, stop)
            every[name] += np.bincount(codes_R, minlength=len(every[name]))
            held_out[name] += np.bincount(codes_R[rows], minlength=len(every[name]))
            if name in by_part:
                both = codes_R.astype(np.int64) * len(PART_NAMES) + parts_R
                by_part[name] += np.bincount(both, minlength=by_part[name].size).reshape(by_part[name].shape)
    train = {name: counts - held_out[name] for name, counts in every.items()}
    return RowCounts(train=train, all=every, by_part=by_part)


def learn_encoder(table: CodedTable, config: Config, parts: ReadParts, n_train: int) -> Encoder:
    """Schema, vocabularies, bins, scales and crosses from training rows.

    Raises:
        SchemaError: for an unusable target or weight, values that are no numbers where numbers are said to be, or
            fewer than two fields.
    """
    data = config.data
    assert data.target is not None
    counts = count_codes(table, parts, [] if data.weight is None else [data.weight])
    target = _learn_target(table, config, counts, parts, n_train)
    if data.weight is not None:
        _check_weights(table, data.weight, counts)
    schema = build_schema(_plan(table, config, counts), target, config)
    field_encoders = tuple(_learn_field(table, field, config, counts, parts, n_train) for field in schema.fields)
    encoder = Encoder(
        schema=schema,
        field_encoders=field_encoders,
        missing_values=data.missing_values,
        handle_unknown=data.handle_unknown,
    )
    return replace(encoder, crosses=_learn_crosses(table, encoder, config, parts, n_train))


def _counted(table: CodedTable, name: str, counts: Counts) -> pl.DataFrame:
    """Values that some of the counted rows hold, with the rows of each."""
    seen = pl.Series(counts > 0)
    return pl.DataFrame({"value": table.columns[name].values.filter(seen), "n": counts[counts > 0]})


# --- target and weight ----------------------------------------------------------------------------------------


def _learn_target(table: CodedTable, config: Config, counts: RowCounts, parts: ReadParts, n_train: int) -> Target:
    data, name = config.data, config.data.target
    assert name is not None
    if table.columns[name].mode == "numbers":
        _refuse_missing_numbers(table, name)
        moments = _moments(table, name, parts)
        return Target(name=name, task="regression", mean=moments.mean, scale=moments.std)
    _refuse_missing_codes(table, name, counts.all[name])
    trained = _counted(table, name, counts.train[name])
    # All labels of the table are known beforehand, so a class seen in validation only is no surprise.
    values = _counted(table, name, counts.all[name])["value"].alias(name)
    if data.task == "regression" or try_numbers(values, data.missing_values) is not None:
        table.check_numbers(name)
    target = infer_target(values, data.task, data.missing_values, n_rows=table.n_rows)
    infer_target(trained["value"].alias(name), data.task, data.missing_values, n_rows=n_train)
    if target.task == "regression":
        numbers = as_number(trained["value"].alias(name), data.missing_values)
        distinct, n_rows, _ = number_counts(numbers, trained["n"].to_numpy())
        moments = Moments.of(distinct, n_rows)
        return replace(target, mean=moments.mean, scale=moments.std)
    return target


def _refuse_missing_numbers(table: CodedTable, name: str) -> None:
    n_missing, first_row = 0, 0
    for start, stop in table.chunks():
        missing = table.numbers(name, start, stop).is_null()
        if missing.any() and not n_missing:
            first_row = start + int(missing.arg_true()[0])
        n_missing += int(missing.sum())
    if n_missing:
        raise missing_target(name, n_missing, first_row)


def _refuse_missing_codes(table: CodedTable, name: str, counts: Counts) -> None:
    """Refuse missing targets; whether "NA" and the like are missing depends on whether the others are numbers."""
    column, seen = table.columns[name], counts > 0
    values = column.values.filter(pl.Series(seen))
    numbers = try_numbers(values, column.missing_values)
    known = canonical(values, column.missing_values) if numbers is None else numbers
    missing = np.zeros(len(counts), dtype=np.bool_)
    missing[seen] = known.is_null().to_numpy()
    if missing.any():
        raise missing_target(name, int(counts[missing].sum()), table.first_row(name, missing))


def _check_weights(table: CodedTable, name: str, counts: RowCounts) -> None:
    """Refuse weights that are missing, negative, or 0 in all rows of a part."""
    table.check_numbers(name)
    column = table.columns[name]
    if column.mode == "numbers":
        return  # looked at row by row when they are encoded
    weights = as_number(column.values, column.missing_values).fill_null(-1.0).to_numpy()
    bad = (weights < 0) & (counts.all[name] > 0)
    if bad.any():
        row = table.first_row(name, bad)
        raise SchemaError(f"weights {name!r} must be 0 or more, none missing; see row {row} (counted from 0)")
    for part, rows in zip(PART_NAMES, counts.by_part[name].T, strict=True):
        if rows.any() and not rows[weights > 0].any():
            raise SchemaError(f"all {part} rows have weight 0; give some rows of each part a weight above 0")


# --- fields ---------------------------------------------------------------------------------------------------


def _plan(table: CodedTable, config: Config, counts: RowCounts) -> dict[str, Field | str]:
    planned: dict[str, Field | str] = {}
    for name in candidate_names(list(table.columns), config):
        column = table.columns[name]
        if column.mode == "skipped":
            planned[name] = column.reason or "it has one value per row"
        elif column.mode == "numbers":
            # It looked like a measure when it was read, or it would have codes.
            planned[name] = make_field(name, "numerical", config.data)
        else:
            planned[name] = plan_field(name, _counted(table, name, counts.train[name]), config.data)
    return planned


def _learn_field(
    table: CodedTable, field: Field, config: Config, counts: RowCounts, parts: ReadParts, n_train: int
) -> FieldEncoder:
    if table.columns[field.name].mode == "numbers":
        return _learn_numbers(table, field, config.data, parts, n_train)
    if field.kind == "numerical":
        table.check_numbers(field.name)
    trained = _counted(table, field.name, counts.train[field.name])
    everything = config.data.counts_from == "all"
    counted = _counted(table, field.name, counts.all[field.name]) if everything else None
    return FieldEncoder.from_counts(field, trained, config.data, counted)


# --- crosses --------------------------------------------------------------------------------------------------


def _learn_crosses(
    table: CodedTable, encoder: Encoder, config: Config, parts: ReadParts, n_train: int
) -> tuple[Cross, ...]:
    data, n_ids, names = config.data, encoder.layout.n_ids, encoder.schema.field_names
    if data.crosses == "none":
        return ()
    tables = ColumnTables(table, encoder)
    if data.crosses == "auto":
        sample = _TrainingRows(table=table, tables=tables, parts=parts)
        pairs = find_crosses(n_train, n_ids, sample.take)
    else:
        pairs = [cross_positions(pair, names) for pair in data.crosses]
    counters = [PairCounts(n_ids, pair) for pair in pairs]
    wanted = sorted({position for pair in pairs for position in pair})
    for start, stop in table.chunks() if pairs else ():
        ids_RF = np.zeros((stop - start, len(names)), dtype=np.int32)
        for position in wanted:
            ids_RF[:, position] = tables.ids(position, start, stop)
        ids_RF = ids_RF[parts(start, stop) == 0]
        for counter in counters:
            counter.add(ids_RF)
    return tuple(counter.cross(data.cross_min_count) for counter in counters)


@dataclass(frozen=True, kw_only=True)
class _TrainingRows:
    """Training rows by their number among training rows."""

    table: CodedTable
    tables: ColumnTables
    parts: ReadParts

    def take(self, rows: npt.NDArray[np.int64] | slice) -> tuple[Ids, Floats]:
        """Ids and targets of ascending row numbers, or of all."""
        ids, targets = [], []
        for start, stop, wanted in self._places(rows):
            ids.append(self.tables.field_ids(start, stop, wanted))
            targets.append(self.tables.target(start, stop)[wanted])
        return np.concatenate(ids), np.concatenate(targets)

    def _places(self, rows: npt.NDArray[np.int64] | slice) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
        before = 0
        for start, stop in self.table.chunks():
            train = np.flatnonzero(self.parts(start, stop) == 0)
            if isinstance(rows, slice):
                yield start, stop, train
            else:
                first, last = np.searchsorted(rows, [before, before + len(train)])
                yield start, stop, train[rows[first:last] - before]
            before += len(train)

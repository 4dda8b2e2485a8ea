"""Column tables: the rows of a coded table, encoded by one lookup per cell.

Shape legend: R rows, F fields and crosses, N numerical fields given as `value x vector`, M measured fields.
"""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np

from fielddep.encoding.coded import CodedTable
from fielddep.encoding.encoder import Encoder, Ids, Numbers, encode_weights
from fielddep.encoding.field import FieldCells
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import IDS, MEASURES, NUMBERS, TARGET, WEIGHT, Array, RowArray, list_name
from fielddep.encoding.target import Target
from fielddep.encoding.values import as_number

_NO_LISTS = Ragged.of([])


class TargetCodec:
    """Encodes the targets of a coded table: each different value once, or number by number."""

    def __init__(self, table: CodedTable, target: Target) -> None:
        self.table, self.target = table, target
        self._targets = None if table.columns[target.name].mode == "numbers" else self._encode_values()

    def encode(self, start: int, stop: int) -> Array:
        """Encoded targets, see `Target.encode`."""
        if self._targets is not None:
            return self._targets[self.table.codes(self.target.name, start, stop)]
        return self.target.encode(self.table.numbers(self.target.name, start, stop), first_row=start)

    def _encode_values(self) -> Array:
        column = self.table.columns[self.target.name]
        known = self.target.is_known(column.values, column.missing_values)
        encoded = self.target.encode(column.values.filter(known), column.missing_values)
        table = np.zeros(len(column.values), dtype=encoded.dtype)
        table[known.to_numpy()] = encoded
        return table


class ColumnTables:
    """Encodes the rows of a coded table: each different value once, then one lookup per cell.

    Args:
        table: the rows.
        encoder: what was learned from them; its crosses are encoded too.
    """

    def __init__(self, table: CodedTable, encoder: Encoder) -> None:
        assert encoder.schema.target is not None
        self.table, self.encoder = table, encoder
        self._names = [field.column for field in encoder.schema.fields]
        cells = FieldCells(lambda name: table.columns[name].values, encoder.missing_values)
        self._fields = [
            None if self._is_numbers(c.field.column) else c.encode(cells.of(c.field)) for c in encoder.field_encoders
        ]
        self.target = TargetCodec(table, encoder.schema.target).encode
        self._weights = self._weight_table()

    def arrays(self, start: int, stop: int, threads: Executor) -> dict[str, RowArray]:
        """All arrays of a store but the parts."""
        layout, n_fields = self.encoder.layout, len(self._names)
        ids_RF = np.empty((stop - start, layout.n_columns), dtype=np.int32)
        numbers_RN = np.empty((stop - start, len(layout.numerical)), dtype=np.float32)
        measures_RM = np.empty((stop - start, len(layout.measured)), dtype=np.float32)
        lists: dict[str, RowArray] = dict.fromkeys(map(list_name, layout.lists), _NO_LISTS)

        def fill(f: int) -> None:
            ids, numbers, measures = self._encode(f, start, stop)
            ids_RF[:, f] = ids
            if numbers is not None:
                numbers_RN[:, layout.numerical.index(f)] = numbers
            if measures is not None:
                measures_RM[:, layout.measured.index(f)] = measures
            if f in layout.lists:
                lists[list_name(f)] = self.lists(f, start, stop)

        list(threads.map(fill, range(n_fields)))
        for position, cross in enumerate(self.encoder.crosses, start=n_fields):
            ids_RF[:, position] = cross.encode(ids_RF)
        arrays: dict[str, RowArray] = {
            IDS: ids_RF,
            NUMBERS: numbers_RN,
            MEASURES: measures_RM,
            **lists,
            TARGET: self.target(start, stop),
        }
        weights = self.weights(start, stop)
        return arrays if weights is None else {**arrays, WEIGHT: weights}

    def ids(self, field: int, start: int, stop: int) -> Ids:
        """Local ids of a field."""
        return self._encode(field, start, stop)[0]

    def weights(self, start: int, stop: int) -> Numbers | None:
        """Sample weights; None means one each."""
        name = self.encoder.schema.weight
        if name is None:
            return None
        if self._weights is not None:
            return self._weights[self.table.codes(name, start, stop)]
        return encode_weights(self.table.numbers(name, start, stop), (), self.table.cells.row_numbers(start, stop))

    def _encode(self, f: int, start: int, stop: int) -> tuple[Ids, Numbers | None, Numbers | None]:
        """Ids, numbers and measures of a field."""
        name, table = self._names[f], self._fields[f]
        if table is None:
            cells = FieldCells(lambda name: self.table.typed_cells(name, start, stop), self.encoder.missing_values)
            column = self.encoder.field_encoders[f].encode(cells.of(self.encoder.schema.fields[f]))
            return column.ids, column.numbers, column.measures
        codes = self.table.codes(name, start, stop)
        numbers, measures = (None if a is None else np.take(a, codes) for a in (table.numbers, table.measures))
        return np.take(table.ids, codes), numbers, measures

    def lists(self, f: int, start: int, stop: int) -> Ragged:
        """Local ids of a field with several values per row."""
        table = self._fields[f]
        assert table is not None and table.lists is not None
        return table.lists.take(self.table.codes(self._names[f], start, stop))

    def _is_numbers(self, name: str) -> bool:
        return self.table.columns[name].mode == "numbers"

    def _weight_table(self) -> Numbers | None:
        name = self.encoder.schema.weight
        if name is None or self._is_numbers(name):
            return None
        column = self.table.columns[name]
        # A missing weight was refused before, so null is a code without rows.
        return as_number(column.values, column.missing_values).fill_null(0.0).to_numpy().astype(np.float32)

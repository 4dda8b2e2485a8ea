"""Code tables: what an encoder says of every different value, so that encoding a row is one look-up a column.

Shape legend: R rows, F fields and crosses, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fielddep.encoding.coded import CodedTable
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import IDS, NUMBERS, TARGET, WEIGHT, Array
from fielddep.encoding.values import as_number, canonical

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class _FieldTable:
    ids: Ids
    numbers: npt.NDArray[np.float32] | None


class ColumnTables:
    """Encodes rows of an interned table.

    Args:
        table: the rows.
        encoder: what was learnt of them; its crosses are encoded too.
    """

    def __init__(self, table: CodedTable, encoder: Encoder) -> None:
        self.table, self.encoder = table, encoder
        self._names = encoder.schema.field_names
        self._fields: list[_FieldTable | None] = [self._field_table(f) for f in range(len(self._names))]
        assert encoder.schema.target is not None
        self._target_name = encoder.schema.target.name
        self._targets = self._target_table()
        self._weights = self._weight_table()

    def arrays(self, start: int, stop: int, threads: Executor) -> dict[str, Array]:
        """All arrays of a store but the parts."""
        layout, n_fields = self.encoder.layout, len(self._names)
        ids_RF = np.empty((stop - start, layout.n_columns), dtype=np.int32)
        numbers_RN = np.empty((stop - start, len(layout.numerical)), dtype=np.float32)

        def fill(f: int) -> None:
            ids, numbers = self._encode(f, start, stop)
            ids_RF[:, f] = ids
            if numbers is not None:
                numbers_RN[:, layout.numerical.index(f)] = numbers

        list(threads.map(fill, range(n_fields)))
        for position, cross in enumerate(self.encoder.crosses, start=n_fields):
            ids_RF[:, position] = cross.encode(ids_RF)
        arrays = {IDS: ids_RF, NUMBERS: numbers_RN, TARGET: self.target(start, stop)}
        weights = self.weight(start, stop)
        return arrays if weights is None else {**arrays, WEIGHT: weights}

    def ids(self, field: int, start: int, stop: int) -> Ids:
        """Local ids of a field."""
        return self._encode(field, start, stop)[0]

    def field_ids(self, start: int, stop: int, rows: npt.NDArray[np.int64]) -> Ids:
        """Local ids of all fields, of some rows of a span."""
        return np.stack([self.ids(f, start, stop)[rows] for f in range(len(self._names))], axis=1)

    def target(self, start: int, stop: int) -> Array:
        """Targets of rows, as a model wants them."""
        if self._targets is not None:
            return self._targets[self.table.codes(self._target_name, start, stop)]
        target = self.encoder.schema.target
        assert target is not None
        return target.encode(self.table.numbers(target.name, start, stop), first_row=start)

    def weight(self, start: int, stop: int) -> npt.NDArray[np.float32] | None:
        """Weights of rows; None where the table has none."""
        name = self.encoder.schema.weight
        if name is None:
            return None
        if self._weights is not None:
            return self._weights[self.table.codes(name, start, stop)]
        weights = self.encoder.encode_weight(self.table.numbers(name, start, stop).to_frame(), first_row=start)
        assert weights is not None
        return weights

    def _encode(self, f: int, start: int, stop: int) -> tuple[Ids, npt.NDArray[np.float32] | None]:
        name, table = self._names[f], self._fields[f]
        if table is None:
            column = self.encoder.field_encoders[f].encode(self.table.numbers(name, start, stop))
            return column.ids, column.numbers
        codes = self.table.codes(name, start, stop)
        return np.take(table.ids, codes), None if table.numbers is None else np.take(table.numbers, codes)

    def _field_table(self, f: int) -> _FieldTable | None:
        column = self.table.columns[self._names[f]]
        if column.mode == "numbers":
            return None
        encoded = self.encoder.field_encoders[f].encode(column.values)
        return _FieldTable(ids=encoded.ids, numbers=encoded.numbers)

    def _target_table(self) -> Array | None:
        column, target = self.table.columns[self._target_name], self.encoder.schema.target
        assert target is not None
        if column.mode == "numbers":
            return None
        known = canonical(column.values, column.missing_values).is_not_null()
        encoded = target.encode(column.values.filter(known), column.missing_values)
        table = np.zeros(len(column.values), dtype=encoded.dtype)
        table[known.to_numpy()] = encoded
        return table

    def _weight_table(self) -> npt.NDArray[np.float32] | None:
        name = self.encoder.schema.weight
        if name is None or self.table.columns[name].mode == "numbers":
            return None
        column = self.table.columns[name]
        # A missing weight was refused before: null only stands for a code that no row has.
        weights = as_number(column.values, column.missing_values).fill_null(0.0)
        encoded = self.encoder.encode_weight(weights.to_frame())
        assert encoded is not None
        return encoded

"""Explanations from an estimator: thin methods around `fielddep.explain`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.errors import SchemaError, TableError
from fielddep.estimator_input import check_target
from fielddep.explain.curves import LearningCurve, learning_curve
from fielddep.explain.dependencies import global_dependencies, learns_dependencies
from fielddep.explain.hiding import Effects, hide_fields
from fielddep.explain.importance import N_REPEATS, FieldImportance, permutation_importance
from fielddep.explain.neighbours import NearestValues, nearest_values, value_embeddings
from fielddep.explain.overview import overview_rows, overview_table
from fielddep.explain.row_values import cell_texts
from fielddep.training.history import Evaluation


class ExplainedEstimator:
    """What every fitted estimator can tell about itself, whatever the model."""

    bundle_: Bundle

    def importance(
        self, X: Any, y: Any, sample_weight: Any = None, *, n_repeats: int = N_REPEATS, seed: int = 0
    ) -> FieldImportance:
        """How much worse the metrics on these rows become when the values of a field are shuffled.

        Args:
            X: rows, best such as were not trained on.
            y: their targets.
            sample_weight: weight of every row.
            n_repeats: shuffles of every field.
            seed: seed of the shuffles.
        """
        if y is None:
            raise SchemaError("importance is measured on rows with known targets; given y = None; give y")
        return permutation_importance(
            self._fitted_bundle(), self._encode(X, y, sample_weight), n_repeats=n_repeats, seed=seed
        )

    def hide_fields(self, X: Any) -> Effects:
        """What the prediction of every row loses when one field is hidden, for each field."""
        return hide_fields(self._fitted_bundle(), self._encode(X), values=self._cell_texts(X))

    def nearest_values(self, field: str, value: object, n: int = 10) -> NearestValues:
        """The values of a field most like a given one, by the cosine of their embeddings."""
        return nearest_values(self._fitted_bundle(), field, value, n=n)

    def embeddings(self, field: str) -> pl.DataFrame:
        """Embedding of every value of a field: value, training count, and one column a dimension."""
        values, counts, table_VD = value_embeddings(self._fitted_bundle(), field)
        columns = {f"e{d}": table_VD[:, d] for d in range(table_VD.shape[1])}
        return pl.DataFrame({"value": values, "count": counts, **columns})

    def write_explanations(
        self, folder: str | Path, X: Any, y: Any = None, *, rows: Sequence[int] = (0,), seed: int = 0
    ) -> list[str]:
        """Write all that `fielddep explain --out` writes, numbers and pictures, into a folder.

        Args:
            folder: made if it is not there.
            X: rows; groups, and importance where `y` is given, are taken from all of them.
            y: their targets.
            rows: positions of the rows to explain one by one.
            seed: seed of groups and shuffles.

        Returns:
            Names of the files.
        """
        # Imported here, as it brings all that draws.
        from fielddep.explain.overview_files import OverviewFolder

        bundle, table = self._fitted_bundle(), self._encode(X, y)
        absent = [row for row in rows if not 0 <= row < len(table)]
        if absent:
            raise TableError(f"row {absent[0]} is asked for, but X has {len(table):,} rows, 0 to {len(table) - 1}")
        out = OverviewFolder(Path(folder))
        dependencies = global_dependencies(bundle) if learns_dependencies(bundle) else None
        out.write_model(dependencies, self._learning_curve())
        chosen = table.take(torch.tensor(rows, dtype=torch.int64))
        found = overview_rows(bundle, chosen, rows, values=self._cell_texts(X, rows))
        out.write_rows(found, dependencies)
        out.write_table(overview_table(bundle, table, seed=seed))
        return out.written

    def _learning_curve(self) -> LearningCurve | None:
        """How the training went; an estimator that was loaded does not know."""
        history = getattr(self, "history_", None)
        return None if history is None else learning_curve([Evaluation(**values) for values in history])

    @abstractmethod
    def _check(self, X: Any) -> pl.DataFrame:
        """The table to look at."""

    def _fitted_bundle(self) -> Bundle:
        check_is_fitted(self, "bundle_")
        return self.bundle_

    def _cell_texts(self, X: Any, rows: Sequence[int] | None = None) -> pl.DataFrame:
        """What rows hold, as text; all of them unless their positions are given."""
        table = self._check(X)
        if rows is not None:
            table = table.select(pl.all().gather(list(rows)))
        return cell_texts(self._fitted_bundle().encoder, table)

    def _encode(self, X: Any, y: Any = None, sample_weight: Any = None) -> EncodedTable:
        """Encoded rows, with targets and weights where they are given."""
        encoder = self._fitted_bundle().encoder
        table = self._check(X)
        rows = encoder.encode(table)
        if y is None:
            return rows
        target = encoder.schema.target
        assert target is not None  # no estimator is fitted without one
        labels = check_target(self, y)
        check_consistent_length(table, labels)
        found = target.encode(pl.Series(target.name, labels.tolist(), strict=False), encoder.missing_values)
        if sample_weight is None:
            return replace(rows, target_R=found)
        weights = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
        return replace(rows, target_R=found, weight_R=torch.from_numpy(weights.astype(np.float32)))

"""Importance of fields for any model: how much worse its metrics get without each of them.

A field is taken away by shuffling its values among the rows (permutation importance), or by hiding it. Shuffling keeps
its distribution and breaks its ties to the target and to other fields. Hiding also measures how well the model copes
with missing values.

Shape legend: F fields, P repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.config.metrics import METRICS, in_order
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import ConfigError, SchemaError
from fielddep.explain.hiding import REFINEMENT, hidden_rows, permute_field, refines, unrefined
from fielddep.explain.rows import Floats, target_of
from fielddep.training.metrics import measure

N_REPEATS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class FieldImportance:
    """How much worse the metrics get when fields are taken away one at a time.

    Attributes:
        method: "permutation" or "hiding".
        names: fields in the order of the table; hiding may also have `REFINEMENT`.
        n_rows: rows measured.
        base: metrics of the complete rows.
        worse_FP: for each metric, how much worse it gets: the rise of a loss, the drop of AUC or accuracy. One column
            per repeat; hiding has one.
    """

    method: str
    names: tuple[str, ...]
    n_rows: int
    base: dict[str, float]
    worse_FP: dict[str, Floats]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The loss first."""
        return tuple(self.worse_FP)

    def mean_F(self, metric: str) -> Floats:
        """Mean over the repeats."""
        means: Floats = self.worse_FP[metric].mean(axis=1)
        return means

    def std_F(self, metric: str) -> Floats:
        """Standard deviation over the repeats (n - 1); NaN for one repeat."""
        values_FP = self.worse_FP[metric]
        if values_FP.shape[1] < 2:
            return np.full(len(values_FP), np.nan)
        deviations: Floats = values_FP.std(axis=1, ddof=1)
        return deviations

    def ranked(self, metric: str | None = None) -> list[str]:
        """Names, the most important first."""
        order = np.argsort(-self.mean_F(metric or self.metrics[0]), kind="stable")
        return [self.names[f] for f in order]

    def to_frame(self) -> pl.DataFrame:
        """One line per metric and field: metric, field, base, importance, std; the most important field first."""
        frames = [
            pl.DataFrame(
                {
                    "metric": [metric] * len(self.names),
                    "field": list(self.names),
                    "base": [self.base[metric]] * len(self.names),
                    "importance": self.mean_F(metric),
                    "std": pl.Series(self.std_F(metric)).fill_nan(None),
                }
            ).sort("importance", descending=True, maintain_order=True)
            for metric in self.metrics
        ]
        return pl.concat(frames)


def permutation_importance(
    bundle: Bundle, rows: EncodedRows, *, n_repeats: int = N_REPEATS, seed: int = 0
) -> FieldImportance:
    """How much worse the metrics get when the values of a field, and so its crosses, are shuffled among the rows.

    The shuffles of a field depend on the seed and its position only.

    Raises:
        SchemaError: if the target is unknown, or there are no rows.
    """
    if n_repeats < 1:
        raise ConfigError(f"n_repeats must be at least 1, but is {n_repeats}")
    base = _base_metrics(bundle, rows)
    names = bundle.encoder.schema.field_names
    found = []
    for position in range(len(names)):
        rng = np.random.default_rng([seed, position])
        orders = (rng.permutation(len(rows)) for _ in range(n_repeats))
        found.append([_metrics(bundle, permute_field(bundle.encoder, rows, position, order_R)) for order_R in orders])
    return _importance("permutation", names, len(rows), base, found)


def hiding_importance(bundle: Bundle, rows: EncodedRows) -> FieldImportance:
    """How much worse the metrics get when a field is hidden, and without refinement if the model refines.

    Raises:
        SchemaError: if the target is unknown, or there are no rows.
    """
    base = _base_metrics(bundle, rows)
    names = bundle.encoder.schema.field_names
    found = [[_metrics(bundle, hidden)] for hidden in hidden_rows(bundle, rows)]
    if refines(bundle):
        names = (*names, REFINEMENT)
        found.append([_metrics(unrefined(bundle), rows)])
    return _importance("hiding", names, len(rows), base, found)


def _base_metrics(bundle: Bundle, rows: EncodedRows) -> dict[str, float]:
    target = target_of(bundle)
    if rows.target_R is None or not len(rows):
        given = "rows without it" if len(rows) else "no rows"
        raise SchemaError(f"importance needs rows with the target {target.name!r}, but was given {given}")
    found = _metrics(bundle, rows)
    if not found:
        raise SchemaError("importance needs rows with a weight above 0, but all weights are 0")
    return in_order(found, brief=True)


def _metrics(bundle: Bundle, rows: EncodedRows) -> dict[str, float]:
    return measure(bundle.model.eval().outputs, target_of(bundle), [rows]).metrics


def _importance(
    method: str, names: tuple[str, ...], n_rows: int, base: dict[str, float], found: list[list[dict[str, float]]]
) -> FieldImportance:
    worse_FP = {}
    for metric, before in base.items():
        sign = -1.0 if METRICS[metric].higher_is_better else 1.0
        worse_FP[metric] = sign * (np.array([[after[metric] for after in repeats] for repeats in found]) - before)
    return FieldImportance(method=method, names=names, n_rows=n_rows, base=base, worse_FP=worse_FP)

"""How good a model is on rows with known targets: the third part of a report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.data.row_sample import RowSample, sample_rows
from fielddep.explain.curves import calibration_curve, score_distribution
from fielddep.explain.importance import permutation_importance
from fielddep.explain.intervals import GAIN, bootstrap_intervals
from fielddep.explain.report import CalibrationPoint, Histogram, ImportanceFacts, MeasuredFacts
from fielddep.explain.report_rows import explained_rows
from fielddep.explain.scores import ScoredRows, score_rows
from fielddep.training.metrics import N_CALIBRATION_BINS

IMPORTANCE_ROWS = 10_000
IMPORTANCE_REPEATS = 3
IMPORTANCE_PREDICTIONS = 300_000
"""Rows that are predicted at most for the importance of all fields together."""
MIN_IMPORTANCE_ROWS = 500
FEW_CLASSES = 6
"""Classes up to which each has a histogram of its own."""
MIN_HISTOGRAM_BINS, MAX_HISTOGRAM_BINS = 10, 40
"""Bins of few rows and of many."""
MAX_SCORE_BINS = 4000
"""Bins between 0 and 1, of which only those with rows are shown."""
MIN_CALIBRATION_BINS, MIN_ROWS_A_BIN = 4, 25
"""Few rows are put into fewer bins, as a bin of a handful of rows says nothing."""


def measured_facts(
    bundle: Bundle,
    sample: RowSample,
    *,
    rows: str,
    metrics: Mapping[str, float],
    base_rate: Mapping[str, float],
    base_of: str,
    base_C: torch.Tensor | None = None,
    seed: int = 0,
) -> MeasuredFacts:
    """Metrics with intervals, curves, importance and explained rows.

    Args:
        bundle: any model.
        sample: rows with targets, or a sample of them; not empty.
        rows: which rows these are, in words.
        metrics: metrics of all of them.
        base_rate: the same of always predicting the base rate.
        base_of: the rows whose base rate that is, in words.
        base_C: output of the model that always predicts it.
        seed: seed of resamples and shuffles.
    """
    table = sample.table
    assert table is not None
    scored = score_rows(bundle, table)
    intervals = bootstrap_intervals(scored, values=metrics, base_C=base_C, n_rows=sample.n_seen, seed=seed)
    gain = intervals.pop(GAIN, None)
    return MeasuredFacts(
        rows=rows,
        n_rows=sample.n_seen,
        n_sampled=len(table),
        metrics=intervals,
        base_rate={name: value for name, value in base_rate.items() if name != "loss"},
        base_of=base_of,
        gain=gain,
        calibration=_calibration(scored),
        scores=_histogram(scored),
        importance=_importance(bundle, table, seed),
        examples=explained_rows(bundle, table, scored, sample.numbers),
    )


def _calibration(scored: ScoredRows) -> tuple[CalibrationPoint, ...]:
    if not scored.weights().sum() > 0:
        return ()
    n_bins = min(N_CALIBRATION_BINS, max(MIN_CALIBRATION_BINS, len(scored) // MIN_ROWS_A_BIN))
    curve = calibration_curve(scored, n_bins=n_bins).to_frame()
    return tuple(CalibrationPoint(**line) for line in curve.iter_rows(named=True))


def _histogram(scored: ScoredRows) -> Histogram | None:
    """How predictions are spread: by class, or beside the true numbers."""
    if not scored.weights().sum() > 0:
        return None
    n_bins = int(np.clip(2 * len(scored) ** (1 / 3), MIN_HISTOGRAM_BINS, MAX_HISTOGRAM_BINS))
    return _number_histogram(scored, n_bins) if scored.target.task == "regression" else _score_histogram(scored, n_bins)


def _score_histogram(scored: ScoredRows, n_bins: int) -> Histogram:
    """Probabilities by class; where all are small, as those of a rare class, bins reach as far as any class does."""
    highest = 1.0
    if scored.target.task == "binary":
        positive_R, truth_R = scored.predictions()[:, 1], scored.truth()
        highest = max(float(np.quantile(positive_R[truth_R == c], 0.999)) for c in np.unique(truth_R))
    n_all = min(MAX_SCORE_BINS, int(np.ceil(n_bins / max(highest, 1e-6))))
    spread = score_distribution(scored, n_bins=n_all)
    n_shown = min(n_all, int(np.ceil(highest * n_all)) + 1)
    share_CN = spread.share_CN[:, :n_shown]
    if len(spread.classes) <= FEW_CLASSES:
        shares = [
            (str(label), tuple(share_N.tolist())) for label, share_N in zip(spread.classes, share_CN, strict=True)
        ]
    else:
        total_N = spread.weight_CN.sum(axis=0)
        shares = [("all classes", tuple((total_N / total_N.sum()).tolist()))]
    return Histogram(edges=tuple(spread.edges[: n_shown + 1].tolist()), shares=tuple(shares))


def _number_histogram(scored: ScoredRows, n_bins: int) -> Histogram:
    """Predicted and true numbers in the same bins, the outermost hundredth of them left out."""
    groups = {"true values": scored.truth(), "predicted values": scored.predictions()}
    low, high = np.quantile(np.concatenate(list(groups.values())), [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, n_bins + 1)
    weights = scored.weights()
    shares = tuple(
        (name, tuple((np.histogram(values, bins=edges, weights=weights)[0] / weights.sum()).tolist()))
        for name, values in groups.items()
    )
    return Histogram(edges=tuple(edges.tolist()), shares=shares)


def _importance(bundle: Bundle, table: EncodedTable, seed: int) -> ImportanceFacts | None:
    n_fields = len(bundle.encoder.coders)
    n_rows = IMPORTANCE_PREDICTIONS // (IMPORTANCE_REPEATS * n_fields)
    n_rows = min(IMPORTANCE_ROWS, max(MIN_IMPORTANCE_ROWS, n_rows))
    rows = sample_rows([table], n_rows, seed=seed).table
    if rows is None or (rows.weight_R is not None and not rows.weight_R.sum() > 0):
        return None
    found = permutation_importance(bundle, rows, n_repeats=IMPORTANCE_REPEATS, seed=seed)
    metric = found.metrics[0]
    numbers = zip(found.names, found.mean_F(metric).tolist(), found.std_F(metric).tolist(), strict=True)
    return ImportanceFacts(
        metric=metric,
        n_rows=found.n_rows,
        n_repeats=IMPORTANCE_REPEATS,
        fields=tuple(sorted(numbers, key=lambda entry: -entry[1])),
    )

"""What each part of the model adds: MDL with evidence as it is, next to variants that lack one part each.

Evidence belongs to the rows, so variants of it have stores of their own; the rows, their split and their ids are the
same. The direct networks are trained before the paper's part and do not know it, so their predictions without it need
no training of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fielddep.config.settings import Config
from fielddep.encoding.rows import Layout
from fielddep.experiments.ablation.plan import PART, PARTS, WITHOUT, Point, Sweep, Training, mdl_settings
from fielddep.experiments.ablation.trainings import ALONE, SweepResult
from fielddep.experiments.folder import open_source
from fielddep.experiments.significance import Summary
from fielddep.observer import Observer
from fielddep.store.store import Store, is_store

FULL = "full"
NO_EVIDENCE, SINGLE_VALUES = "no-evidence", "single-values"
ROWS: Mapping[str, Mapping[str, Any]] = {
    NO_EVIDENCE: {"data.evidence": "none"},
    SINGLE_VALUES: {"data.evidence": "auto", "data.max_combinations": 0},
}
"""Settings of the rows of variants, by the name of their store."""
MEANINGS = {
    "without evidence": "data.evidence = none",
    "single values only": "data.max_combinations = 0",
    "direct networks alone": "the same training, with the weight of the paper's part set to 0",
    "without direct networks": "model.direct = none",
    "without refinement": "model.n_inner_steps = 0",
    "without dependencies": "model.dependencies = none",
}
"""Variants in the order of tables, and what differs."""


def part_stores(
    source: str,
    folder: Path,
    store: Store,
    *,
    settings: Mapping[str, Any],
    raw: Path | None = None,
    observer: Observer | None = None,
) -> dict[str, Store]:
    """Stores with less evidence, encoded if they do not exist; none if there is no table to encode, or no evidence."""
    if is_store(source) or not store.layout.evidence:
        return {}
    names = ROWS if _has_combinations(store.layout) else [NO_EVIDENCE]
    return {
        name: open_source(
            source, folder / f"store-{name}", settings={**settings, **ROWS[name]}, raw=raw, observer=observer
        ).store
        for name in names
    }


def _has_combinations(layout: Layout) -> bool:
    return any(len(fields) > 1 for fields in layout.evidence)


def parts_sweep(base: Training, without: Config, layout: Layout, stores: Mapping[str, Store]) -> Sweep:
    """The model and all variants that differ from it on rows of this layout."""
    has_direct = mdl_settings(base.config).direct != "none" and bool(layout.measured or layout.evidence)
    points = [Point(value=FULL, training=base)]
    for value, name in (("without evidence", NO_EVIDENCE), ("single values only", SINGLE_VALUES)):
        if name in stores and has_direct:
            points.append(Point(value=value, training=Training(name=f"mdl-{name}", config=base.config, rows=name)))
    if has_direct:
        points.append(Point(value="direct networks alone", training=base, form=ALONE))
        no_direct = Training(name="mdl-no-direct", config=base.config.replace({"model.direct": "none"}))
        points.append(Point(value="without direct networks", training=no_direct))
    if mdl_settings(base.config).n_inner_steps:
        # Named like the training with 0 steps of another question, which it equals.
        no_steps = Training(name="trained_steps-0", config=base.config.replace({"model.n_inner_steps": 0}))
        points.append(Point(value="without refinement", training=no_steps))
    points.append(Point(value="without dependencies", training=Training(name=WITHOUT, config=without)))
    return Sweep(question=PARTS, setting=PART, points=tuple(points), control=FULL)


def changes(result: SweepResult, part: str, metric: str) -> dict[str, Summary | None]:
    """How much a metric of every variant differs from that of the model with the same seed, in per cent."""
    full = result.values(FULL, part, metric)
    found: dict[str, Summary | None] = {}
    for point in result.sweep.points:
        own = result.values(point.value, part, metric)
        per_cent = [100 * (own[seed] / full[seed] - 1) for seed in own if full.get(seed)]
        found[str(point.value)] = Summary.of(per_cent) if per_cent else None
    return found


def skipped_parts(sweep: Sweep) -> tuple[str, ...]:
    """Variants that a table does not have."""
    shown = {point.value for point in sweep.points}
    return tuple(value for value in MEANINGS if value not in shown)

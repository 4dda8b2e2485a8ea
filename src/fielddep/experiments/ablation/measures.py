"""Measures of an ablation: metrics of a trained MDL and of its dependencies, with any number of refinement steps.

All rows are read block by block, so they may be larger than memory.

Shape legend: B rows, F fields (m).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from fielddep.data.batch import Batch
from fielddep.data.row_sample import sample_rows
from fielddep.data.store.loader import Rows
from fielddep.experiments.ablation.run import DEPENDENCY_LOSS, MU_STD
from fielddep.experiments.single_run import without_loss
from fielddep.experiments.trained import measured
from fielddep.nn.mdl import MDL
from fielddep.predictor import BATCH_ROWS, Predictor

SAMPLE_SEED = 0
"""All runs are measured on the same training rows."""


def measured_rows(parts: Mapping[str, Rows], n_train_rows: int) -> dict[str, Rows]:
    """Rows of all parts; of the training rows a random sample where there are more than so many."""
    train = parts["train"]
    sample = sample_rows(train.blocks(), n_train_rows, seed=SAMPLE_SEED).rows if len(train) > n_train_rows else train
    return {**parts, "train": sample}


def row_figures(predictor: Predictor, rows: Rows, n_steps: int | None = None) -> dict[str, float]:
    """Metrics of rows and, where the network sees dependencies, figures of these.

    Args:
        predictor: a trained MDL.
        rows: rows with targets.
        n_steps: refinement steps of every row (T); None: as many as the model was trained with.
    """
    model = predictor.bundle.model
    assert isinstance(model, MDL)
    with inner_steps(model, n_steps):
        metrics = without_loss(measured(predictor.logits, predictor.target, rows).metrics)
        if model.config.dependencies == "none":
            return metrics
        return {**metrics, **dependency_figures(predictor, rows)}


@contextmanager
def inner_steps(model: MDL, n_steps: int | None) -> Iterator[None]:
    """Within the block the model refines so many steps, with the same weights."""
    before = model.refinement.n_inner_steps
    model.refinement.n_inner_steps = before if n_steps is None else n_steps
    try:
        yield
    finally:
        model.refinement.n_inner_steps = before


@torch.no_grad()
def dependency_figures(predictor: Predictor, rows: Rows) -> dict[str, float]:
    """Means over rows, by their weights, of the dependency loss and of the spread of mu/lambda over fields."""
    model = predictor.bundle.model
    assert isinstance(model, MDL)
    sums, total = torch.zeros(2, dtype=torch.float64), 0.0
    for block in rows.blocks():
        for start in range(0, len(block), BATCH_ROWS):
            batch = block.batch(slice(start, start + BATCH_ROWS)).to(predictor.device)
            values_2B = _dependency_values(model, batch).double().cpu()
            weight_B = torch.ones(len(batch)) if batch.weight_B is None else batch.weight_B.cpu()
            sums += values_2B @ weight_B.double()
            total += float(weight_B.sum(dtype=torch.float64))
    loss, spread = (sums / total).tolist()
    return {DEPENDENCY_LOSS: loss, MU_STD: spread}


def _dependency_values(model: MDL, batch: Batch) -> torch.Tensor:
    """Dependency loss of every row, and the standard deviation over fields of its mu/lambda (2, B)."""
    state = model.refinement(model.fields_of(model.embed(batch.ids_BF, batch.numbers_BN)))
    sparsity = model.config.sparsity
    return torch.stack([state.loss_BF(sparsity).sum(dim=1), (state.mu_BF / sparsity).std(dim=1, correction=0)])

"""Small trained models that the tests of explanations share; each is trained once a process."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.config.settings import Config
from fielddep.datasets.synthetic import SyntheticTable, generate
from fielddep.encoding.rows import EncodedRows
from fielddep.explain.curves import ScoredRows
from fielddep.training.fit import fit
from fielddep.training.metrics import Metrics
from tests.conftest import quick_config, small_frame

MIXED_FIELDS = ("colour", "shape", "size", "price", "height")


@cache
def mixed_frame(n_rows: int = 400, seed: int = 0) -> pl.DataFrame:
    """Fields of every kind: with and without missing values, categorical, binned and given as value x vector."""
    rng = np.random.default_rng(seed + 100)
    frame = small_frame(n_rows, seed)
    absent = {name: pl.Series(rng.random(n_rows) < 0.1) for name in ("colour", "height")}
    return frame.with_columns(
        colour=pl.when(~absent["colour"]).then(pl.col("colour")),
        price=pl.Series(rng.gamma(2.0, 10.0, n_rows).round(2)),
        height=pl.when(~absent["height"]).then(pl.Series(rng.normal(size=n_rows).round(3)) + pl.col("good")),
        weight=pl.Series(rng.integers(0, 4, n_rows).astype(float)),
        kind=pl.col("shape") + pl.col("good").cast(pl.String),
        cost=pl.col("good") * 40.0 + pl.Series(rng.normal(size=n_rows)) + 1000.0,
    )


def metrics_of(scored: ScoredRows) -> dict[str, float]:
    """Metrics of known predictions."""
    assert scored.target_R is not None
    metrics = Metrics(scored.target)
    metrics.update(scored.logits_RC, scored.target_R, scored.weight_R)
    return metrics.result()


def bundle_of(frame: pl.DataFrame, config: Config) -> Bundle:
    fitted = fit(frame, config)
    return Bundle.of(fitted)


@cache
def mixed(target: str = "good", model: str = "mdl", weight: str | None = None, steps: int = 4) -> Bundle:
    """A model of the mixed table with two crosses; refinement takes large steps, so that it matters."""
    settings: dict[str, object] = {
        "data__target": target,
        "data__fields": list(MIXED_FIELDS),
        "data__numeric": {"size": "scale", "height": "scale", "price": "quantile"},
        "data__crosses": [["colour", "shape"], ["shape", "price"]],
        "data__weight": weight,
        "model__name": model,
        "train__max_epochs": 6,
        "train__batch_size": 64,
    }
    own = {"model__inner_step": "scaled", "model__sparsity": 2.0, "model__n_inner_steps": steps}
    base = quick_config() if model == "mdl" else Config().replace({"model.name": model, "train.eval_every": 1})
    given = settings | (own if model == "mdl" else {})
    return bundle_of(mixed_frame(), base.replace({k.replace("__", "."): v for k, v in given.items()}))


def mixed_rows(bundle: Bundle, n_rows: int = 120, *, with_target: bool = True) -> EncodedRows:
    """Rows that the models of `mixed` were not trained on."""
    return bundle.encoder.encode(mixed_frame(n_rows, seed=7), with_target=with_target)[0]


@cache
def planted(seed: int = 1) -> tuple[SyntheticTable, Bundle, EncodedRows]:
    """A table with a planted pair, a model that found it, and rows with targets that it was not trained on."""
    table = generate(14_000, n_fields=5, n_values=10, seed=seed)
    config = Config().replace(
        {
            "data.target": table.target,
            "data.crosses": "none",
            "data.evidence": "none",
            "model.embedding_init_scale": 0.5,
            "model.d_embed": 8,
            "model.hidden": [32],
            "model.inner_step": "fixed",
            "model.inner_lr": 1.0,
            "model.batch_norm": "all",
            "train.optimizer": "adagrad",
            "train.lr": 0.05,
            "train.batch_size": 512,
            "train.max_epochs": 10,
            "train.patience": 100,
            "train.embedding_l2": 0.0,
            "train.unknown_rate": 0.25,
        }
    )
    bundle = bundle_of(table.frame.head(12_000), config)
    return table, bundle, bundle.encoder.encode(table.frame.tail(2000), with_target=True)[0]


@cache
def found_planted() -> tuple[Bundle, EncodedRows, npt.NDArray[np.bool_]]:
    """A model whose refinement shows the planted pair, new rows, and in which of them the pair is intact.

    `field_1` follows from `field_0` in four of five rows. A regression target says enough
    about every row for a second of training.
    """
    table = generate(8000, n_fields=5, n_values=10, seed=0, task="regression")
    bundle = bundle_of(table.frame.head(6000), planted_config(table.target))
    implied = table.frame.group_by("field_0").agg(implied=pl.col("field_1").mode().first())
    new = table.frame.tail(2000).join(implied, on="field_0", how="left", maintain_order="left")
    intact_R = (new["field_1"] == new["implied"]).to_numpy()
    return bundle, bundle.encoder.encode(new, with_target=True)[0], intact_R


def planted_config(target: str) -> Config:
    """Settings by which a second of training is enough for `generate(8000, n_fields=5, n_values=10)`."""
    return Config().replace(
        {
            "data.target": target,
            "data.crosses": "none",
            "data.evidence": "none",
            "model.inner_step": "scaled",
            "model.inner_lr": 1.5,
            "model.d_embed": 8,
            "model.hidden": [32],
            "train.optimizer": "adagrad",
            "train.lr": 0.1,
            "train.batch_size": 512,
            "train.max_epochs": 10,
            "train.patience": 100,
            "train.embedding_l2": 0.0,
        }
    )

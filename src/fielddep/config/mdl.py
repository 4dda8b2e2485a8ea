"""Settings of MDL, and what the settings of all models share.

A setting is a field that knows its documentation and range. A model's settings say what can be set, which optimizer
suits it, and where a search looks for better ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal


def setting(
    default: Any, doc: str, *, at_least: float | None = None, above: float | None = None, below: float | None = None
) -> Any:
    """A dataclass field that knows its documentation and the range of its numbers."""
    metadata = {"doc": doc, "at_least": at_least, "above": above, "below": below}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Between:
    """A search takes any number from `low` to `high`; with `log`, every power of ten is as likely."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class OneOf:
    """A search takes one of these values."""

    values: tuple[Any, ...]


Space = Between | OneOf


LEARNING_RATES: Mapping[str, float] = {"adagrad": 0.05, "adam": 0.001}
LEARNING_RATE_SEARCH: Mapping[str, Between] = {
    "adagrad": Between(0.01, 0.2, log=True),
    "adam": Between(0.0003, 0.02, log=True),
}
"""Where a search looks for `train.lr`; every search looks for it."""
RIDGE_SEARCH: Mapping[str, Space] = {
    "train.embedding_l2": Between(0.01, 5.0, log=True),
    "train.first_order_l2": Between(0.003, 0.3, log=True),
    "train.l2_rarity": OneOf((0.0, 0.5, 1.0)),
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What the settings of every model have."""

    name: str = setting("", "model")

    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adagrad"
    """What trains the model where `train.optimizer` is not set."""
    LEARNING_RATE: ClassVar[float | None] = None
    """Learning rate of that optimiser where `train.lr` is not set; None: what suits most models."""
    EMBEDDING_L2: ClassVar[float] = 0.2
    FIRST_ORDER_L2: ClassVar[float] = 0.1
    """Ridges where `train.embedding_l2` and `train.first_order_l2` are not set; few rows raise them."""
    SEARCH: ClassVar[Mapping[str, Space]] = RIDGE_SEARCH
    """Where a search looks, by dotted setting; `train.lr` is searched for every model."""
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Settings that a search tries first, after the defaults: what is known to suit the model."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(ModelConfig):
    """A model that embeds values."""

    d_embed: int | None = setting(None, "size of an embedding; default: from the number of rows", at_least=1)
    embedding_init_scale: float = setting(0.1, "standard deviation of the embeddings at the start", at_least=0)


@dataclass(frozen=True, kw_only=True)
class DeepConfig(EmbeddingConfig):
    """A model with a network on top of its embeddings."""

    hidden: tuple[int, ...] = setting((400, 400, 400), "widths of the hidden layers", at_least=1)
    batch_norm: Literal["all", "hidden", "none"] = setting(
        "hidden", "BatchNorm before every hidden layer (all), before all but the first (hidden), or none"
    )
    dropout: float = setting(0.2, "dropout after every hidden layer", at_least=0, below=1)

    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adam"
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **RIDGE_SEARCH,
        "model.d_embed": OneOf((10, 16, 40)),
        "model.hidden": OneOf(((100, 100), (200, 200), (400, 400, 400))),
        "model.batch_norm": OneOf(("hidden", "none")),
        "model.dropout": OneOf((0.0, 0.2, 0.4)),
    }


@dataclass(frozen=True, kw_only=True)
class MDLConfig(ModelConfig):
    """Meta-Dependency Learning. Symbols of the paper stand in brackets."""

    name: Literal["mdl"] = setting("mdl", "model")
    d_embed: int | None = setting(None, "size of an embedding (k)", at_least=1)
    n_inner_steps: int = setting(4, "label-free refinement steps a row (T)", at_least=0)
    inner_lr: float = setting(1.0, "step size of the refinement (eta)", at_least=0)
    inner_step: Literal["fixed", "scaled", "damped"] = setting(
        "fixed",
        "steps of size inner_lr (fixed), of inner_lr over the norm of the row's E^T E (scaled), or over the mean of "
        "that norm and the one of an average row (damped), so that the same inner_lr suits embeddings of any size; "
        "above 2 a scaled step may overshoot, above 1 a damped one",
    )
    sparsity: float = setting(10.0, "sum of the field weights mu (lambda); smaller gives sparser weights", above=0)
    dependencies: Literal["refined", "global", "none"] = setting(
        "refined",
        "what the network sees: refined (W(T), mu(T) of the row), global (W(0) alone, with global_penalty) or "
        "none (no inner loop, no dependency input)",
    )
    global_penalty: float = setting(0.01, "weight of the dependency loss when dependencies = global (zeta)", at_least=0)
    mu_start: Literal["share", "one"] = setting("share", "mu(0): lambda/m each (share) or 1 each (one)")
    mu_update_from: Literal["new", "old"] = setting("new", "W of the mu update: W(t) (new) or W(t-1) (old)")
    residual_reduction: Literal["sum", "mean"] = setting(
        "sum",
        "squared residuals of the mu update are summed over the k rows of E; mean divides by k. (The paper "
        "prints a sum with 1_m, which does not conform to k rows.)",
    )
    dependency_scale: Literal["normalized", "raw"] = setting(
        "normalized", "dependencies given to the network: mu/lambda * W (normalized) or mu * W (raw)"
    )
    dependency_diagonal: bool = setting(False, "give the network the diagonal of mu * W too")
    dependency_init: Literal["uniform", "zeros"] = setting("uniform", "W(0) off the diagonal: 1/(m-1) or 0")
    interaction_init: Literal["xavier", "identity"] = setting(
        "identity", "start of the pair matrices Phi: the identity (plain products, as in an FM), or Xavier uniform"
    )
    product_output: bool = setting(
        True, "add the plain sum of the pair products to the output, as an FM does (not with several classes)"
    )
    embedding_input: bool = setting(False, "give the network the embeddings themselves too, as a deep CTR model does")
    hidden: tuple[int, ...] = setting((100, 100), "widths of the hidden layers", at_least=1)
    batch_norm: Literal["all", "hidden", "none"] = setting(
        "none",
        "BatchNorm before every hidden layer (all), before all but the first (hidden), or none; in front of the "
        "first layer it hides the scale of the embeddings, so that a ridge on them does nothing",
    )
    dropout: float = setting(0.0, "dropout after every hidden layer", at_least=0, below=1)
    embedding_dropout: float = setting(0.0, "dropout on the embedded fields", at_least=0, below=1)
    first_order: bool = setting(True, "add one weight per value (b[x_i]) to the output")
    embedding_init: Literal["xavier", "normal"] = setting(
        "normal", "start of embeddings: N(0, embedding_init_scale), or Xavier uniform over the joint table"
    )
    embedding_init_scale: float = setting(0.1, "standard deviation when embedding_init = normal", at_least=0)

    SEARCH: ClassVar[Mapping[str, Space]] = {
        **RIDGE_SEARCH,
        "model.d_embed": OneOf((16, 24, 40, 64)),
        "model.n_inner_steps": OneOf((2, 4, 6)),
        "model.inner_step": OneOf(("fixed", "scaled")),
        "model.inner_lr": Between(0.1, 3.0, log=True),
        "model.sparsity": Between(1.0, 100.0, log=True),
        "model.hidden": OneOf(((), (100, 100), (200, 200))),
        "model.product_output": OneOf((False, True)),
        "model.batch_norm": OneOf(("all", "none")),
        "model.embedding_init": OneOf(("normal", "xavier")),
        "model.dropout": OneOf((0.0, 0.2)),
        "train.optimizer": OneOf(("adagrad", "adam")),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"model.batch_norm": "all", "model.embedding_init": "xavier", "model.product_output": False,
         "model.inner_step": "scaled", "model.sparsity": 1.0, "train.embedding_l2": 1.0},
        {"model.hidden": (), "train.embedding_l2": 0.4},
    )  # fmt: skip

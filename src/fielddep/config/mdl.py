"""Settings of MDL, and the base classes of all models' settings.

A setting is a dataclass field with documentation and a range. The settings of a model also name the optimizer that
suits it, and where a search looks for better values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal


def setting(
    default: Any, doc: str, *, at_least: float | None = None, above: float | None = None, below: float | None = None
) -> Any:
    """A dataclass field with its documentation and the range of its numbers."""
    metadata = {"doc": doc, "at_least": at_least, "above": above, "below": below}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Where:
    """A space counts only if another setting has one of some values; `data.task` is the task of the target."""

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Between:
    """A search draws any number from `low` to `high`; with `log`, uniformly in its logarithm."""

    low: float
    high: float
    log: bool = False
    where: Where | None = None


@dataclass(frozen=True)
class OneOf:
    """A search draws one of these values."""

    values: tuple[Any, ...]
    where: Where | None = None


Space = Between | OneOf


LEARNING_RATES: Mapping[str, float] = {"adagrad": 0.05, "adam": 0.001}
LEARNING_RATE_SEARCH: Mapping[str, Between] = {
    "adagrad": Between(0.01, 0.2, log=True),
    "adam": Between(0.0003, 0.02, log=True),
}
"""Range of `train.lr`, which every search tunes."""
RIDGE_SEARCH: Mapping[str, Space] = {
    "train.embedding_l2": Between(0.01, 5.0, log=True),
    "train.first_order_l2": Between(0.003, 0.3, log=True),
    "train.l2_rarity": OneOf((0.0, 0.5, 1.0)),
}
DIRECT_DOC = (
    "auto: a plain network sees numbers and frequent categories, another one numbers and evidence, as far as the table "
    "has any. They are trained first and the model on top of them; all outputs are added with weights from validation "
    "rows. none: the model alone, without evidence"
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The settings of a model."""

    name: str = setting("", "model")

    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adagrad"
    """Default of `train.optimizer`."""
    LEARNING_RATE: ClassVar[float | None] = None
    """Default of `train.lr` with this optimizer; None means the one in `LEARNING_RATES`."""
    EMBEDDING_L2: ClassVar[float] = 0.2
    FIRST_ORDER_L2: ClassVar[float] = 0.1
    """Defaults of `train.embedding_l2` and `train.first_order_l2`, raised if there are few rows."""
    APART_L2: ClassVar[float] = 1.0
    """Default of `train.embedding_l2` for a regression that is trained apart from direct networks."""
    SEARCH: ClassVar[Mapping[str, Space]] = RIDGE_SEARCH
    """Where a search looks, by dotted setting, in addition to `train.lr`."""
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Settings that a search tries right after the defaults. The model's authors, later benchmarks, or trials by hand
    on Frappe's validation rows found them good."""

    @property
    def uses_evidence(self) -> bool:
        """Whether the model sees evidence, if there is any."""
        return False


@dataclass(frozen=True, kw_only=True)
class FieldModelConfig(ModelConfig):
    """The settings of every network. Baselines are by default what their papers say, so that comparisons are fair."""

    direct: Literal["auto", "none"] = setting("none", DIRECT_DOC)
    direct_hidden: tuple[int, ...] = setting(
        (128, 128, 128), "widths of the hidden layers of those networks", at_least=1
    )
    on_direct: bool | None = setting(
        None,
        "train the model on top of the outputs of those networks (true), or apart from them, from the base rate "
        "(false); all are mixed in both cases; default: true, but false for regression without numbers",
    )

    @property
    def uses_evidence(self) -> bool:
        """Whether the model sees evidence, if there is any."""
        return self.direct == "auto"


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(FieldModelConfig):
    """A model that embeds values."""

    d_embed: int | None = setting(None, "size of an embedding; default: from the number of rows", at_least=1)
    embedding_init_scale: float = setting(0.1, "standard deviation of the initial embeddings", at_least=0)


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
class MDLConfig(FieldModelConfig):
    """Meta-Dependency Learning, with the symbols of the paper in brackets."""

    name: str = setting("mdl", "model")
    d_embed: int | None = setting(None, "size of an embedding (k)", at_least=1)
    n_inner_steps: int = setting(4, "label-free refinement steps per row (T)", at_least=0)
    inner_lr: float = setting(1.0, "step size of the refinement (eta)", at_least=0)
    inner_step: Literal["fixed", "scaled", "damped"] = setting(
        "damped",
        "size of a step: inner_lr (fixed), inner_lr over the norm of the row's E^T E (scaled), or over the mean of "
        "that norm and the norm of an average row (damped). With the last two, one inner_lr suits embeddings of any "
        "size, but a scaled step may overshoot above 2 and a damped one above 1",
    )
    sparsity: float = setting(10.0, "sum of the field weights mu (lambda); smaller gives sparser weights", above=0)
    dependencies: Literal["refined", "global", "none"] = setting(
        "refined",
        "input of the network: refined (W(T) and mu(T) of the row), global (only W(0), with global_penalty) or none "
        "(no inner loop, no dependency input)",
    )
    global_penalty: float = setting(0.01, "weight of the dependency loss when dependencies = global (zeta)", at_least=0)
    mu_start: Literal["share", "one"] = setting("share", "mu(0): lambda/m each (share) or 1 each (one)")
    mu_update_from: Literal["new", "old"] = setting("new", "W of the mu update: W(t) (new) or W(t-1) (old)")
    residual_reduction: Literal["sum", "mean"] = setting(
        "sum",
        "squared residuals of the mu update: summed over the k rows of E (sum), or divided by k (mean). The paper "
        "prints a sum with 1_m, which does not conform to k rows",
    )
    dependency_scale: Literal["normalized", "raw"] = setting(
        "normalized", "dependencies as the network sees them: mu/lambda * W (normalized) or mu * W (raw)"
    )
    dependency_diagonal: bool = setting(False, "also give the network the diagonal of mu * W")
    dependency_init: Literal["uniform", "zeros"] = setting("uniform", "W(0) off the diagonal: 1/(m-1) or 0")
    interaction_init: Literal["xavier", "identity"] = setting(
        "identity", "initial pair matrices Phi: the identity (plain products, as in an FM), or Xavier uniform"
    )
    product_output: bool = setting(
        True, "add the sum of the pair products to the output, as an FM does (not with several classes)"
    )
    embedding_input: bool = setting(False, "also give the network the embeddings, as deep CTR models do")
    hidden: tuple[int, ...] = setting((100, 100), "widths of the hidden layers", at_least=1)
    batch_norm: Literal["all", "hidden", "none"] = setting(
        "none",
        "BatchNorm before every hidden layer (all), before all but the first (hidden), or none; before the first layer "
        "it hides the scale of the embeddings, so a ridge on them does nothing",
    )
    dropout: float = setting(0.0, "dropout after every hidden layer", at_least=0, below=1)
    embedding_dropout: float = setting(0.0, "dropout on the embedded fields", at_least=0, below=1)
    first_order: bool = setting(True, "add one weight per value (b[x_i]) to the output")
    embedding_init: Literal["xavier", "normal"] = setting(
        "normal", "initial embeddings: N(0, embedding_init_scale), or Xavier uniform over the joint table"
    )
    embedding_init_scale: float = setting(0.1, "standard deviation with embedding_init = normal", at_least=0)
    direct: Literal["auto", "none"] = setting("auto", DIRECT_DOC)

    SEARCH: ClassVar[Mapping[str, Space]] = {
        **RIDGE_SEARCH,
        "model.d_embed": OneOf((16, 24, 40, 64)),
        "model.n_inner_steps": OneOf((2, 4, 6)),
        "model.inner_step": OneOf(("fixed", "damped")),
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
        # Near the settings of the paper, with a ridge.
        {"model.batch_norm": "all", "model.embedding_init": "xavier", "model.interaction_init": "xavier",
         "model.product_output": False, "train.embedding_l2": 1.0},
        {"model.hidden": (), "train.embedding_l2": 0.4},
    )  # fmt: skip

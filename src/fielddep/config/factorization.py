"""Settings of linear models and factorization machines: sums of weights and of products of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fielddep.config.mdl import Between, DeepConfig, EmbeddingConfig, FieldModelConfig, OneOf, Space, setting


@dataclass(frozen=True, kw_only=True)
class MachineConfig(EmbeddingConfig):
    """A model whose output is a sum of products of embeddings.

    No layer after the products can make up for embeddings that a ridge has shrunk. So the ridge must be far weaker than
    in deep models, and steps can be larger.
    """

    LEARNING_RATE: ClassVar[float | None] = 0.15
    EMBEDDING_L2: ClassVar[float] = 0.03
    FIRST_ORDER_L2: ClassVar[float] = 0.01
    SEARCH: ClassVar[Mapping[str, Space]] = {
        "train.embedding_l2": Between(0.001, 0.5, log=True),
        "train.first_order_l2": Between(0.0003, 0.1, log=True),
        "train.l2_rarity": OneOf((0.0, 0.5, 1.0)),
    }


@dataclass(frozen=True, kw_only=True)
class LRConfig(FieldModelConfig):
    """Logistic or linear regression: one weight per value."""

    name: Literal["lr"] = setting("lr", "model")

    LEARNING_RATE: ClassVar[float | None] = 0.15
    FIRST_ORDER_L2: ClassVar[float] = 0.003
    SEARCH: ClassVar[Mapping[str, Space]] = {
        "train.first_order_l2": Between(0.0001, 0.3, log=True),
        "train.l2_rarity": OneOf((0.0, 0.5, 1.0)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.first_order_l2": 0.0003, "train.l2_rarity": 0.0},
        {"train.first_order_l2": 0.05},
    )


@dataclass(frozen=True, kw_only=True)
class FMConfig(MachineConfig):
    """Factorization machine: one weight per value, one product of embeddings per pair of fields."""

    name: Literal["fm"] = setting("fm", "model")

    SEARCH: ClassVar[Mapping[str, Space]] = {**MachineConfig.SEARCH, "model.d_embed": OneOf((10, 20, 40, 80))}
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"model.d_embed": 40, "train.lr": 0.15, "train.embedding_l2": 0.01, "train.first_order_l2": 0.003},
        {"model.d_embed": 20, "train.lr": 0.05, "train.embedding_l2": 0.1, "train.first_order_l2": 0.03},
    )


@dataclass(frozen=True, kw_only=True)
class FFMConfig(MachineConfig):
    """Field-aware factorization machine: a value has an embedding for every other field."""

    name: Literal["ffm"] = setting("ffm", "model")
    d_embed: int | None = setting(8, "size of an embedding, of which a value has one for every other field", at_least=1)
    normalize: bool = setting(False, "scale rows to unit length, as libffm does")

    SEARCH: ClassVar[Mapping[str, Space]] = {**MachineConfig.SEARCH, "model.d_embed": OneOf((4, 8, 16))}
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"model.d_embed": 16, "train.lr": 0.2, "train.embedding_l2": 0.01, "train.first_order_l2": 0.003},
        {"model.d_embed": 4, "train.lr": 0.05, "train.embedding_l2": 0.1, "train.first_order_l2": 0.03},
    )


@dataclass(frozen=True, kw_only=True)
class FWLConfig(MachineConfig):
    """Field-wise learning: for every value of a field, a low-rank linear model over the other fields."""

    name: Literal["fwl"] = setting("fwl", "model")
    d_embed: int | None = setting(10, "largest rank of a field's models", at_least=1)
    rank_base: float | None = setting(
        None, "the rank of a field's models is the log of its number of values to this base, at most d_embed", above=1
    )
    variance_lr: float = setting(
        0.001, "step size of the penalty on the variance of a field's models; 0 turns it off", at_least=0
    )
    variance_every: int = setting(1000, "training steps between two steps of that penalty", at_least=1)
    mean_penalty: bool = setting(True, "apply the penalty to the mean of a field's models as well")
    first_order: bool = setting(True, "add one weight per value to the output")

    SEARCH: ClassVar[Mapping[str, Space]] = {
        **MachineConfig.SEARCH,
        "model.d_embed": OneOf((5, 10, 20)),
        "model.variance_lr": Between(1e-6, 1e-2, log=True),
        "model.variance_every": OneOf((100, 1000)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.15, "train.embedding_l2": 0.01, "train.first_order_l2": 0.003, "model.variance_lr": 1e-6},
        {"train.lr": 0.05, "train.embedding_l2": 0.1, "train.first_order_l2": 0.03},
    )


@dataclass(frozen=True, kw_only=True)
class LLFMConfig(MachineConfig):
    """Locally linear factorization machine: one FM per anchor, mixed by how near the row is to each anchor."""

    name: Literal["llfm"] = setting("llfm", "model")
    d_embed: int | None = setting(20, "size of an embedding; every anchor has its own", at_least=1)
    n_anchors: int = setting(5, "anchors, each with its own FM", at_least=1)
    locality: float = setting(0.1, "factor of the distances (L/C); larger values use fewer anchors per row", above=0)
    anchor_rate: float = setting(
        0.1, "how fast the anchors move relative to other weights; 0 keeps them where they start", at_least=0
    )
    anchor_rows: int = setting(20_000, "training rows for K-means, which finds the initial anchors", at_least=1)

    EMBEDDING_L2: ClassVar[float] = 0.015
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **MachineConfig.SEARCH,
        "model.d_embed": OneOf((10, 20, 40)),
        "model.n_anchors": OneOf((2, 5, 10)),
        "model.locality": Between(0.02, 1.0, log=True),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.2, "train.embedding_l2": 0.005, "train.first_order_l2": 0.003, "model.locality": 0.1},
        {"train.lr": 0.05, "train.embedding_l2": 0.1, "train.first_order_l2": 0.03, "model.n_anchors": 2},
    )


@dataclass(frozen=True, kw_only=True)
class RaFMConfig(MachineConfig):
    """Rank-aware factorization machine: frequent values have larger embeddings."""

    name: Literal["rafm"] = setting("rafm", "model")
    d_embed: int | None = setting(32, "size of the smallest embedding, for the rarest values", at_least=1)
    d_levels: tuple[int, ...] = setting((64,), "sizes of the further embeddings, in ascending order", at_least=1)
    thresholds: tuple[int, ...] = setting(
        (64,), "a value seen more often than this in training also has the embedding of that level", at_least=0
    )
    distill: float = setting(
        1.0, "weight of the loss that teaches a level to predict like the next one (rho)", at_least=0
    )
    joint: bool = setting(
        False, "the task loss also trains the lower levels of frequent values, as in the released code"
    )

    EMBEDDING_L2: ClassVar[float] = 0.01
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **MachineConfig.SEARCH,
        "model.d_embed": OneOf((16, 32)),
        "model.d_levels": OneOf(((64,), (128,), (256,))),
        "model.thresholds": OneOf(((16,), (64,), (256,))),
        "model.joint": OneOf((False, True)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.15, "train.embedding_l2": 0.01, "train.first_order_l2": 0.003, "model.joint": True},
        {"train.lr": 0.05, "train.embedding_l2": 0.1, "train.first_order_l2": 0.03, "model.joint": True},
    )


@dataclass(frozen=True, kw_only=True)
class IFMConfig(DeepConfig):
    """Input-aware factorization machine: a network scales the weights and embeddings of each row."""

    name: Literal["ifm"] = setting("ifm", "model")
    hidden: tuple[int, ...] = setting((64,), "widths of the network that scales the fields", at_least=1)
    batch_norm: Literal["all", "hidden", "none"] = setting("none", "BatchNorm before hidden layers")
    dropout: float = setting(0.0, "dropout after every hidden layer", at_least=0, below=1)

    LEARNING_RATE: ClassVar[float | None] = 0.005
    EMBEDDING_L2: ClassVar[float] = 0.05
    FIRST_ORDER_L2: ClassVar[float] = 0.01
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **MachineConfig.SEARCH,
        "model.d_embed": OneOf((16, 40, 64)),
        "model.hidden": OneOf(((64,), (128, 64), (256, 128))),
        "model.dropout": OneOf((0.0, 0.2)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.005, "train.embedding_l2": 0.05, "train.first_order_l2": 0.003, "model.d_embed": 40},
        {"train.lr": 0.003, "train.embedding_l2": 0.2, "train.first_order_l2": 0.03, "model.d_embed": 16},
    )


@dataclass(frozen=True, kw_only=True)
class INNConfig(EmbeddingConfig):
    """Interaction-aware neural network: attention over pairs, scaled by prototypes of their fields."""

    name: Literal["inn"] = setting("inn", "model")
    d_embed: int | None = setting(20, "size of an embedding", at_least=1)
    d_attention: int = setting(16, "width of the attention network over pairs (A)", at_least=1)
    d_field: int = setting(16, "size of a field's vector (K_F)", at_least=1)
    temperature: float = setting(10.0, "divisor inside the attention network (tau)", above=0)
    n_hidden: int = setting(20, "hidden units over all pairs; the authors' code has 5", at_least=1)
    dropout: float = setting(0.1, "dropout on the attention weights and on the pairs", at_least=0, below=1)

    # A trial with Adagrad (rate .1, 5 hidden units) on Frappe's validation rows did no better than LR.
    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adam"
    LEARNING_RATE: ClassVar[float | None] = 0.005
    EMBEDDING_L2: ClassVar[float] = 0.03
    FIRST_ORDER_L2: ClassVar[float] = 0.01
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **MachineConfig.SEARCH,
        "model.d_embed": OneOf((10, 20, 40)),
        "model.n_hidden": OneOf((5, 20, 50)),
        "model.temperature": Between(1.0, 10.0, log=True),
        "train.weight_decay": OneOf((0.0, 0.2)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.005, "train.embedding_l2": 0.02, "train.first_order_l2": 0.003},
        {"train.lr": 0.005, "train.embedding_l2": 0.2, "train.first_order_l2": 0.03, "model.n_hidden": 5},
    )

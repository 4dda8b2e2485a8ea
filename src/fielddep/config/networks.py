"""Settings of deep models: CTR networks over embeddings of fields, and networks for tables in general."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fielddep.config.mdl import RIDGE_SEARCH, Between, DeepConfig, EmbeddingConfig, OneOf, Space, setting


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(DeepConfig):
    """A model whose network sees the embeddings.

    The defaults come from trials on Frappe's validation rows, where BatchNorm was no better.
    """

    hidden: tuple[int, ...] = setting((200, 200), "widths of the hidden layers", at_least=1)
    batch_norm: Literal["all", "hidden", "none"] = setting(
        "none", "BatchNorm before every hidden layer (all), before all but the first (hidden), or none"
    )

    LEARNING_RATE: ClassVar[float | None] = 0.005
    FIRST_ORDER_L2: ClassVar[float] = 0.01
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **DeepConfig.SEARCH,
        "train.embedding_l2": Between(0.02, 20.0, log=True),
        "model.d_embed": OneOf((10, 20, 40)),
        "model.hidden": OneOf(((100,), (100, 100), (200, 200), (400, 400))),
        "model.batch_norm": OneOf(("none", "hidden", "all")),
        "train.weight_decay": OneOf((0.0, 0.2, 0.5)),
    }


@dataclass(frozen=True, kw_only=True)
class WideDeepConfig(NetworkConfig):
    """Wide & Deep: one weight per value next to a network on the embeddings."""

    name: Literal["wide_deep"] = setting("wide_deep", "model")

    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.005, "train.embedding_l2": 0.2, "train.first_order_l2": 0.003, "train.weight_decay": 0.5,
         "model.d_embed": 40},
        {"train.lr": 0.003, "train.embedding_l2": 10.0, "train.l2_rarity": 0.0, "train.first_order_l2": 0.003,
         "train.weight_decay": 0.5, "model.d_embed": 20, "model.batch_norm": "all",
         "model.embedding_init_scale": 0.01},
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DeepFMConfig(NetworkConfig):
    """DeepFM: a factorization machine next to a network on the same embeddings."""

    name: Literal["deepfm"] = setting("deepfm", "model")
    hidden: tuple[int, ...] = setting((100, 100), "widths of the hidden layers", at_least=1)

    EMBEDDING_L2: ClassVar[float] = 0.1
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.005, "train.embedding_l2": 0.1, "train.first_order_l2": 0.003, "train.weight_decay": 0.5,
         "model.d_embed": 40},
        {"train.lr": 0.005, "train.embedding_l2": 0.05, "train.first_order_l2": 0.003, "model.hidden": (100,),
         "model.d_embed": 40},
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class XDeepFMConfig(NetworkConfig):
    """xDeepFM: weights of values, a network, and a compressed interaction network."""

    name: Literal["xdeepfm"] = setting("xdeepfm", "model")
    d_embed: int | None = setting(16, "size of an embedding", at_least=1)
    hidden: tuple[int, ...] = setting((100, 100), "widths of the hidden layers", at_least=1)
    n_maps: tuple[int, ...] = setting(
        (64,), "feature maps of each layer of the compressed interaction network", at_least=1
    )

    EMBEDDING_L2: ClassVar[float] = 0.1
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **NetworkConfig.SEARCH,
        "model.d_embed": OneOf((10, 16, 32)),
        "model.n_maps": OneOf(((32,), (64,), (32, 32))),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.005, "train.embedding_l2": 0.1, "train.first_order_l2": 0.003, "train.weight_decay": 0.5},
        {"train.lr": 0.003, "train.embedding_l2": 0.5, "train.first_order_l2": 0.03, "model.n_maps": (32, 32)},
    )


@dataclass(frozen=True, kw_only=True)
class AFNConfig(DeepConfig):
    """Adaptive factorization network: logarithmic neurons learn the order of the interactions."""

    name: Literal["afn"] = setting("afn", "model")
    d_embed: int | None = setting(10, "size of an embedding", at_least=1)
    n_neurons: int = setting(
        100, "logarithmic neurons, shared by all dimensions of the embeddings; the authors use 600 or more", at_least=1
    )
    hidden: tuple[int, ...] = setting((200, 200), "widths of the hidden layers", at_least=1)
    embedding_init_scale: float = setting(
        0.01, "standard deviation of the initial embeddings, which are near 1", at_least=0
    )

    # After BatchNorm, a far stronger ridge than elsewhere was best in trials on Frappe's validation rows.
    LEARNING_RATE: ClassVar[float | None] = 0.005
    EMBEDDING_L2: ClassVar[float] = 5.0
    SEARCH: ClassVar[Mapping[str, Space]] = {
        "train.embedding_l2": Between(0.2, 20.0, log=True),
        "train.l2_rarity": OneOf((0.0, 0.5, 1.0)),
        "train.weight_decay": OneOf((0.0, 0.5)),
        "model.d_embed": OneOf((10, 20)),
        "model.n_neurons": OneOf((50, 100, 200)),
        "model.dropout": OneOf((0.0, 0.2, 0.4)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.005, "train.embedding_l2": 2.0},
        {"train.lr": 0.005, "train.embedding_l2": 2.0, "train.weight_decay": 0.5, "model.hidden": (100,)},
    )


@dataclass(frozen=True, kw_only=True)
class FinalMLPConfig(DeepConfig):
    """FinalMLP: two gated networks whose outputs meet in a bilinear form."""

    name: Literal["finalmlp"] = setting("finalmlp", "model")
    d_embed: int | None = setting(20, "size of an embedding", at_least=1)
    hidden: tuple[int, ...] = setting((200, 200), "widths of the first network", at_least=1)
    hidden_2: tuple[int, ...] = setting((100,), "widths of the second network", at_least=1)
    gate_hidden: tuple[int, ...] = setting((400,), "widths of the networks that gate the two", at_least=1)
    context_1: tuple[str, ...] = setting((), "fields that gate the first network; none: a learned vector")
    context_2: tuple[str, ...] = setting((), "fields that gate the second network; none: a learned vector")
    n_heads: int = setting(5, "heads of the bilinear form; must divide the last widths of both networks", at_least=1)
    batch_norm: Literal["all", "hidden", "none"] = setting(
        "all", "BatchNorm within every hidden layer (all), within all but the first (hidden), or none"
    )

    # After BatchNorm, a far stronger ridge than elsewhere was best in trials on Frappe's validation rows.
    LEARNING_RATE: ClassVar[float | None] = 0.003
    EMBEDDING_L2: ClassVar[float] = 10.0
    SEARCH: ClassVar[Mapping[str, Space]] = {
        "train.embedding_l2": Between(1.0, 50.0, log=True),
        "train.l2_rarity": OneOf((0.0, 0.5, 1.0)),
        "train.weight_decay": OneOf((0.0, 0.2, 0.5)),
        "model.d_embed": OneOf((10, 20, 40)),
        "model.hidden": OneOf(((400,), (200, 200))),
        "model.hidden_2": OneOf(((100,), (200, 200))),
        "model.dropout": OneOf((0.1, 0.2, 0.4)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.003, "train.embedding_l2": 10.0, "train.l2_rarity": 0.5, "train.weight_decay": 0.2},
        {"train.lr": 0.005, "train.embedding_l2": 0.2, "train.weight_decay": 0.5, "model.d_embed": 40,
         "model.batch_norm": "none", "model.hidden_2": (100, 100)},
    )  # fmt: skip


# For models without a first-order table.
_TABLE_RIDGE_SEARCH = {path: space for path, space in RIDGE_SEARCH.items() if path != "train.first_order_l2"}


@dataclass(frozen=True, kw_only=True)
class NODEConfig(EmbeddingConfig):
    """NODE: layers of soft oblivious trees on the embeddings."""

    name: Literal["node"] = setting("node", "model")
    d_embed: int | None = setting(8, "size of an embedding, whose numbers are the inputs of the trees", at_least=1)
    n_layers: int = setting(1, "layers; each sees the outputs of those before it", at_least=1)
    n_trees: int = setting(128, "trees per layer", at_least=1)
    depth: int = setting(6, "splits of a tree", at_least=1)
    d_tree: int = setting(3, "outputs of a tree", at_least=1)
    embedding_init_scale: float = setting(0.03, "standard deviation of the initial embeddings", at_least=0)

    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adam"
    LEARNING_RATE: ClassVar[float | None] = 0.01
    EMBEDDING_L2: ClassVar[float] = 0.1
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **_TABLE_RIDGE_SEARCH,
        "model.d_embed": OneOf((4, 8, 16)),
        "model.n_trees": OneOf((64, 128, 256)),
        "model.depth": OneOf((4, 6)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.01, "train.embedding_l2": 0.3},
        {"train.lr": 0.01, "train.embedding_l2": 0.5, "model.n_trees": 256},
    )


@dataclass(frozen=True, kw_only=True)
class TabNetConfig(EmbeddingConfig):
    """TabNet: steps that each look at a sparse selection of the inputs."""

    name: Literal["tabnet"] = setting("tabnet", "model")
    d_embed: int | None = setting(10, "size of an embedding", at_least=1)
    n_steps: int = setting(3, "decision steps", at_least=1)
    d_decision: int = setting(16, "outputs of a step (n_d)", at_least=1)
    d_attention: int = setting(16, "numbers that select the inputs of the next step (n_a)", at_least=1)
    relaxation: float = setting(1.3, "how often an input may be selected again (gamma); 1 means once", at_least=1)
    sparsity: float = setting(0.001, "weight of the entropy of the selection", at_least=0)
    virtual_batch: int = setting(256, "rows that BatchNorm takes its statistics from", at_least=2)

    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adam"
    LEARNING_RATE: ClassVar[float | None] = 0.01
    EMBEDDING_L2: ClassVar[float] = 1.0
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **_TABLE_RIDGE_SEARCH,
        "model.d_embed": OneOf((4, 10, 20)),
        "model.n_steps": OneOf((3, 4, 5)),
        "model.d_decision": OneOf((16, 32, 64)),
        "model.d_attention": OneOf((16, 32, 64)),
        "model.sparsity": Between(1e-5, 1e-3, log=True),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.01, "train.embedding_l2": 2.0},
        {"train.lr": 0.01, "train.embedding_l2": 1.0, "model.d_decision": 32, "model.d_attention": 32},
    )


@dataclass(frozen=True, kw_only=True)
class TabTransformerConfig(EmbeddingConfig):
    """TabTransformer: attention between the fields of a row, then a network."""

    name: Literal["tabtransformer"] = setting("tabtransformer", "model")
    d_embed: int | None = setting(16, "size of an embedding; n_heads must divide it", at_least=1)
    column_share: float = setting(0.125, "share of an embedding that all values of a field share", at_least=0, below=1)
    n_layers: int = setting(1, "layers of attention", at_least=1)
    n_heads: int = setting(4, "heads of a layer", at_least=1)
    hidden: tuple[int, ...] = setting((200, 100), "widths of the network after the attention", at_least=1)
    dropout: float = setting(0.1, "dropout in the layers and the network", at_least=0, below=1)

    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adam"
    LEARNING_RATE: ClassVar[float | None] = 0.005
    EMBEDDING_L2: ClassVar[float] = 0.3
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **_TABLE_RIDGE_SEARCH,
        "model.d_embed": OneOf((16, 32)),
        "model.n_layers": OneOf((1, 2, 3)),
        "model.dropout": OneOf((0.0, 0.1, 0.3)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.005, "train.embedding_l2": 1.0},
        {"train.lr": 0.005, "train.embedding_l2": 1.0, "model.dropout": 0.3},
    )


@dataclass(frozen=True, kw_only=True)
class SAINTConfig(EmbeddingConfig):
    """SAINT: attention between fields, then between rows; predictions look at fixed reference rows."""

    name: Literal["saint"] = setting("saint", "model")
    d_embed: int | None = setting(16, "size of an embedding; n_heads must divide it", at_least=1)
    n_layers: int = setting(1, "blocks of attention between fields and between rows", at_least=1)
    n_heads: int = setting(4, "heads of a layer", at_least=1)
    attention: Literal["fields", "both"] = setting("both", "attention between fields only, or also between rows")
    n_reference: int = setting(
        128, "training rows that a predicted row attends to; in training, rows of a group", at_least=1
    )
    d_row_head: int = setting(16, "size of a head of the attention between rows", at_least=1)
    hidden: tuple[int, ...] = setting((100,), "widths of the network after the attention", at_least=1)
    dropout: float = setting(0.1, "dropout in the layers between fields", at_least=0, below=1)
    row_dropout: float = setting(0.1, "dropout in the layers between rows", at_least=0, below=1)

    OPTIMIZER: ClassVar[Literal["adagrad", "adam"]] = "adam"
    LEARNING_RATE: ClassVar[float | None] = 0.002
    EMBEDDING_L2: ClassVar[float] = 0.1
    SEARCH: ClassVar[Mapping[str, Space]] = {
        **_TABLE_RIDGE_SEARCH,
        "model.d_embed": OneOf((8, 16, 32)),
        "model.attention": OneOf(("fields", "both")),
        "model.dropout": OneOf((0.0, 0.1, 0.3)),
        "model.row_dropout": OneOf((0.1, 0.3, 0.8)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"train.lr": 0.01, "train.embedding_l2": 0.1, "model.attention": "fields"},
        {"train.lr": 0.002, "train.embedding_l2": 0.1, "model.row_dropout": 0.8},
    )

"""Settings of tree models, named as in their libraries, and of the blend of MDL and trees.

`training/trees.py` fixes all other parameters. From the section `train`, trees use `seed` and `threads` only; they have
a learning rate of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fielddep.config.mdl import Between, MDLConfig, ModelConfig, OneOf, Space, Where, setting


@dataclass(frozen=True, kw_only=True)
class TreeConfig(ModelConfig):
    """Settings of both tree models."""

    max_trees: int = setting(5000, "most trees (per class, if there are more than two)", at_least=1)
    patience: int = setting(100, "trees without a lower validation loss before training stops", at_least=1)
    evidence: bool = setting(False, "see what rows with the same values did, if data.evidence counts it")
    categories: bool = setting(True, "see categories next to the evidence")

    @property
    def uses_evidence(self) -> bool:
        """Whether the trees see evidence, if there is any."""
        return self.evidence


@dataclass(frozen=True, kw_only=True)
class LightGBMConfig(TreeConfig):
    """LightGBM, with its own defaults."""

    name: str = setting("lightgbm", "model")
    num_leaves: int = setting(31, "most leaves of a tree", at_least=2)
    learning_rate: float = setting(0.1, "factor of a tree's output", above=0)
    min_child_samples: int = setting(20, "fewest rows of a leaf", at_least=1)
    min_data_per_group: int = setting(100, "fewest rows per value in a split by many values", at_least=1)
    cat_smooth: float = setting(10.0, "how strongly statistics of rare values are pulled to the mean", at_least=0)
    cat_l2: float = setting(10.0, "ridge on the leaves of a split by many values", at_least=0)
    max_cat_to_onehot: int = setting(4, "a field with at most this many values is split one against all", at_least=1)
    max_cat_threshold: int = setting(32, "most values on the smaller side of a split", at_least=1)
    feature_fraction: float = setting(1.0, "share of the fields that a tree sees", above=0)
    bagging_fraction: float = setting(1.0, "share of the rows that a tree sees", above=0)
    lambda_l2: float = setting(0.0, "ridge on the leaves", at_least=0)

    SEARCH: ClassVar[Mapping[str, Space]] = {
        "model.num_leaves": Between(7, 511, log=True),
        "model.learning_rate": Between(0.02, 0.3, log=True),
        "model.min_child_samples": Between(1, 200, log=True),
        "model.min_data_per_group": Between(1, 1000, log=True),
        "model.cat_smooth": Between(0.1, 500.0, log=True),
        "model.cat_l2": Between(0.1, 500.0, log=True),
        "model.max_cat_to_onehot": Between(1, 64, log=True),
        "model.max_cat_threshold": Between(4, 2048, log=True),
        "model.feature_fraction": Between(0.4, 1.0),
        "model.bagging_fraction": Between(0.5, 1.0),
        "model.lambda_l2": Between(0.001, 100.0, log=True),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"model.num_leaves": 217, "model.learning_rate": 0.05, "model.min_child_samples": 60,
         "model.min_data_per_group": 14, "model.cat_smooth": 250.0, "model.cat_l2": 30.0,
         "model.max_cat_to_onehot": 57, "model.feature_fraction": 0.75, "model.bagging_fraction": 0.55},
        {"model.num_leaves": 127, "model.min_child_samples": 5, "model.min_data_per_group": 5,
         "model.cat_smooth": 1.0, "model.cat_l2": 1.0, "model.max_cat_threshold": 1024},
    )  # fmt: skip


CTR_CHOICES = (
    ("Borders:CtrBorderCount=63:Prior=0/1:Prior=0.5/1:Prior=1/1", "Counter:CtrBorderCount=63:Prior=0/1"),
    ("Borders:Prior=0.1/1:Prior=0.5/1", "Counter:Prior=0/1"),
    ("BinarizedTargetMeanValue:Prior=0/1:Prior=0.5/1:Prior=1/1", "Counter:Prior=0/1"),
)
"""Statistics that a search of CatBoost tries besides its default, which has the priors 0, .5 and 1 in 15 bins: finer
bins, fewer priors, and means. On a CPU, CatBoost refuses priors whose denominator is not 1."""


@dataclass(frozen=True, kw_only=True)
class CatBoostConfig(TreeConfig):
    """CatBoost, with its own defaults."""

    name: str = setting("catboost", "model")
    learning_rate: float | None = setting(
        None, "factor of a tree's output; default: CatBoost's choice from rows and trees", above=0
    )
    depth: int = setting(6, "splits of a tree from root to leaf", at_least=1, below=17)
    l2_leaf_reg: float | None = setting(
        None, "ridge on the leaves; default: 3. If it is set, CatBoost does not choose a learning rate", at_least=0
    )
    random_strength: float = setting(1.0, "noise in the scores of splits", at_least=0)
    bootstrap_type: Literal["Bayesian", "Bernoulli", "MVS", "No"] | None = setting(
        None, "how rows are drawn or weighted for a tree; default: CatBoost's choice, MVS or Bayesian"
    )
    bagging_temperature: float | None = setting(
        None,
        "spread of the random weights of rows; it needs the Bayesian bootstrap and means it if none is given",
        at_least=0,
    )
    subsample: float | None = setting(
        None, "share of the rows that a tree sees; not with the Bayesian bootstrap; default: CatBoost's choice", above=0
    )
    one_hot_max_size: int = setting(2, "a field with at most this many values is split one against all", at_least=1)
    max_ctr_complexity: int | None = setting(
        None, "most fields whose joint values get statistics; default: CatBoost's choice", at_least=1
    )
    simple_ctr: tuple[str, ...] | None = setting(
        None, "statistics of single values and their priors, in CatBoost's words; default: CatBoost's choice"
    )
    combinations_ctr: tuple[str, ...] | None = setting(
        None, "the same for joint values of several fields; default: CatBoost's choice"
    )
    ctr_target_border_count: int | None = setting(
        None,
        "thresholds of the target that statistics count; ignored with two classes, which have one; default: 1 for "
        "regression, one less than the classes for several",
        at_least=1,
        below=256,
    )
    model_size_reg: float | None = setting(
        None, "how firmly statistics of many values are avoided, which make a model large; default: 0.5", at_least=0
    )

    SEARCH: ClassVar[Mapping[str, Space]] = {
        "model.learning_rate": Between(0.03, 0.3, log=True),
        "model.depth": Between(4, 10),
        "model.l2_leaf_reg": Between(0.5, 30.0, log=True),
        "model.random_strength": Between(0.1, 10.0, log=True),
        "model.bootstrap_type": OneOf((None, "Bayesian", "MVS")),
        "model.bagging_temperature": Between(0.0, 2.0, where=Where("model.bootstrap_type", ("Bayesian",))),
        "model.subsample": Between(0.5, 1.0, where=Where("model.bootstrap_type", ("MVS",))),
        "model.one_hot_max_size": OneOf((2, 10, 50)),
        "model.max_ctr_complexity": OneOf((1, 2, 4)),
        "model.simple_ctr": OneOf((None, *CTR_CHOICES)),
        "model.combinations_ctr": OneOf((None, *CTR_CHOICES)),
        "model.ctr_target_border_count": Between(1, 16, log=True, where=Where("data.task", ("regression",))),
        "model.model_size_reg": OneOf((0.0, 0.5)),
    }
    STARTS: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"model.learning_rate": 0.1, "model.depth": 8, "model.max_ctr_complexity": 4, "model.model_size_reg": 0.0,
         "model.ctr_target_border_count": 4},
        {"model.learning_rate": 0.1, "model.depth": 8, "model.max_ctr_complexity": 2},
        {"model.learning_rate": 0.2, "model.depth": 6, "model.max_ctr_complexity": 1},
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BlendConfig(MDLConfig):
    """MDL and LightGBM, whose outputs are added with weights from validation rows (extra `trees`)."""

    name: str = setting("blend", "model")
    max_trees: int = setting(2000, "most trees of LightGBM (per class, if there are more than two)", at_least=1)
    tree_patience: int = setting(50, "trees without a lower validation loss before its training stops", at_least=1)
    num_leaves: int = setting(31, "most leaves of a tree", at_least=2)
    learning_rate: float = setting(0.05, "factor of a tree's output", above=0)
    min_child_samples: int = setting(40, "fewest rows of a leaf", at_least=1)
    feature_fraction: float = setting(0.5, "share of the inputs that a tree sees", above=0)
    lambda_l2: float = setting(2.0, "ridge on the leaves", at_least=0)

    SEARCH: ClassVar[Mapping[str, Space]] = {
        **MDLConfig.SEARCH,
        "model.num_leaves": Between(7, 255, log=True),
        "model.learning_rate": Between(0.02, 0.2, log=True),
        "model.min_child_samples": Between(5, 200, log=True),
        "model.feature_fraction": Between(0.3, 1.0),
        "model.lambda_l2": Between(0.01, 30.0, log=True),
    }

    @property
    def uses_evidence(self) -> bool:
        """Whether the model sees evidence, if there is any: its trees do in any case."""
        return True

    def trees(self, *, categories: bool) -> LightGBMConfig:
        """The settings of LightGBM on evidence, with or without categories."""
        return LightGBMConfig(
            max_trees=self.max_trees,
            patience=self.tree_patience,
            evidence=True,
            categories=categories,
            num_leaves=self.num_leaves,
            learning_rate=self.learning_rate,
            min_child_samples=self.min_child_samples,
            feature_fraction=self.feature_fraction,
            lambda_l2=self.lambda_l2,
        )

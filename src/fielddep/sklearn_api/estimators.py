"""Estimators: MDL and the baselines as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from fielddep.config.data import DataConfig, Numeric, SplitConfig
from fielddep.config.mdl import MDLConfig
from fielddep.config.settings import TrainConfig
from fielddep.explain.dependencies import Explanation, explain_rows, global_dependencies
from fielddep.explain.evidence import N_STRONGEST, RowEvidence, row_evidence
from fielddep.explain.groups import N_GROUPS, RowGroups, group_rows
from fielddep.sklearn_api.base import TableClassifier, TableEstimator, TableRegressor

_DATA, _SPLIT, _MODEL, _TRAIN = DataConfig(), SplitConfig(), MDLConfig(), TrainConfig()
_MDL_SETTINGS = (
    *("d_embed", "n_inner_steps", "inner_lr", "sparsity", "dependencies", "hidden", "batch_norm", "dropout"),
    "first_order",
)


def _set_parameters(estimator: TableEstimator, arguments: dict[str, Any]) -> None:
    """Keep the arguments of a constructor as they are, under their own names, as scikit-learn requires."""
    for name, value in arguments.items():
        if name != "self":
            setattr(estimator, name, value)


class _EvidenceEstimator(TableEstimator):
    """What the estimator of any model with evidence can explain."""

    def row_evidence(self, X: Any, *, n_strongest: int = N_STRONGEST) -> RowEvidence:
        """What training rows with the same values did, for every row and the combinations of fields that count most.

        Args:
            X: rows, ideally new ones: a training row counts itself.
            n_strongest: combinations per row, at most.

        Raises:
            UserError: the model has no evidence; a baseline has some with {"model.direct": "auto"} as `config`.
        """
        return row_evidence(self._fitted_bundle(), self._encode(X), n_strongest=n_strongest)


class _MDLEstimator(_EvidenceEstimator):
    """Arguments of the estimators of MDL, and what only they can explain."""

    def __init__(
        self,
        *,
        d_embed: int | None = _MODEL.d_embed,
        n_inner_steps: int = _MODEL.n_inner_steps,
        inner_lr: float = _MODEL.inner_lr,
        sparsity: float = _MODEL.sparsity,
        dependencies: str = _MODEL.dependencies,
        hidden: tuple[int, ...] = _MODEL.hidden,
        batch_norm: str = _MODEL.batch_norm,
        dropout: float = _MODEL.dropout,
        first_order: bool = _MODEL.first_order,
        optimizer: str | None = _TRAIN.optimizer,
        lr: float | None = _TRAIN.lr,
        batch_size: int | None = _TRAIN.batch_size,
        max_epochs: int = _TRAIN.max_epochs,
        eval_every: float | None = _TRAIN.eval_every,
        patience: int = _TRAIN.patience,
        embedding_l2: float | None = _TRAIN.embedding_l2,
        weight_decay: float = _TRAIN.weight_decay,
        min_count: int | Mapping[str, int] = _DATA.min_count,
        kinds: Mapping[str, str] | None = None,
        numeric: Numeric | Mapping[str, Numeric] = _DATA.numeric,
        handle_unknown: str = _DATA.handle_unknown,
        validation: float = _SPLIT.validation,
        class_weight: str | Mapping[Any, float] | None = None,
        config: Mapping[str, Any] | None = None,
        device: str = _TRAIN.device,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        """`fielddep settings` has the ranges and all further settings.

        Args:
            d_embed: size of an embedding (k); None: from the number of rows.
            n_inner_steps: refinement steps per row (T).
            inner_lr: step size of the refinement (eta).
            sparsity: sum of the field weights mu (lambda); smaller gives sparser weights.
            dependencies: input of the network: those refined for each row ("refined"), W(0) for all ("global"), "none".
            hidden: widths of the hidden layers.
            batch_norm: BatchNorm before every hidden layer ("all"), before all but the first ("hidden"), or "none".
            dropout: dropout after every hidden layer.
            first_order: add one weight per value to the output.
            optimizer: adagrad or adam; None: the one that suits the model.
            lr: learning rate; None: from model and optimizer.
            batch_size: rows per step; None: from the number of rows.
            max_epochs: most passes over the training rows.
            eval_every: evaluations per epoch; None: 4.
            patience: evaluations without improvement before training stops.
            embedding_l2: ridge on embeddings; None: from model and number of rows.
            weight_decay: decay of all weights per step, times the learning rate.
            min_count: values seen fewer times in training share one id; one number, or one per field.
            kinds: "categorical", "numerical", "both", "date", "list" or "text" by column, where the inferred kind is
                wrong.
            numeric: how numerical fields are encoded, "quantile", "scale" or "log2"; one word, or one per field.
            handle_unknown: what a value never seen in training does: it counts as rare ("rare"), or is an "error".
            validation: share of the rows held out to know when to stop, unless `fit` gets an `eval_set`.
            class_weight: for classifiers, "balanced" or a dict of class and weight, 1 for a class that it does not
                name. Multiplied into the weights of the rows of X, not into those of `eval_set`. It shifts all
                probabilities towards classes of large weight.
            config: any further settings by dotted name, such as {"model.mu_start": "one"}; they
                override the other arguments.
            device: torch device, such as "cpu" or "cuda".
            n_jobs: CPU threads in training, -1 for all processors; None: torch's choice.
            random_state: seed of split, weights and shuffling; None means 0, so that fitting is reproducible.
            verbose: print a line per evaluation to stderr.
        """
        _set_parameters(self, locals())

    def field_dependencies(self) -> pl.DataFrame:
        """The learned m x m table W(0): one row per source field, one column per dependent field."""
        return global_dependencies(self._fitted_bundle()).to_frame()

    def explain(self, X: Any) -> Explanation:
        """Refined dependencies, weights mu and dependency loss for every row and step."""
        return explain_rows(self._fitted_bundle(), self._encode(X), values=self._cell_texts(X))

    def group_rows(self, X: Any, y: Any = None, *, n_groups: int = N_GROUPS, seed: int = 0) -> RowGroups:
        """Groups of rows with similar refined dependencies, and what the rows of a group have in common.

        Args:
            X: rows.
            y: their targets; with them, every group has their mean.
            n_groups: most groups.
            seed: seed of the grouping.
        """
        return group_rows(self._fitted_bundle(), self._encode(X, y), n_groups=n_groups, seed=seed)

    def _model_settings(self) -> dict[str, Any]:
        return {f"model.{name}": getattr(self, name) for name in _MDL_SETTINGS}


class MDLClassifier(TableClassifier, _MDLEstimator):
    """Meta-Dependency Learning for two or more classes.

    Attributes:
        classes_: labels, sorted; columns of `predict_proba` follow them.

    Example:
        >>> X = pl.DataFrame({"colour": ["red", "blue"] * 40, "shape": ["disc", "disc", "cube", "cube"] * 20})
        >>> y = ["good", "bad", "bad", "good"] * 20
        >>> model = MDLClassifier(max_epochs=60, patience=60).fit(X, y)
        >>> model.predict(pl.DataFrame({"colour": ["red", "red"], "shape": ["disc", "cube"]})).tolist()
        ['good', 'bad']
        >>> model.predict(pl.DataFrame({"colour": ["green"], "shape": [None]})).shape  # unseen, missing
        (1,)
    """


class MDLRegressor(TableRegressor, _MDLEstimator):
    """Meta-Dependency Learning for numbers.

    Example:
        >>> X = pl.DataFrame({"user": ["ann", "bob"] * 40, "film": ["x", "x", "y", "y"] * 20})
        >>> model = MDLRegressor(max_epochs=80, patience=80).fit(X, [5.0, 1.0, 1.0, 5.0] * 20)
        >>> model.predict(X[:1]).shape
        (1,)
    """


class _BaselineEstimator(_EvidenceEstimator):
    """Arguments of the estimators of all other models."""

    def __init__(
        self,
        model: str = "fm",
        *,
        optimizer: str | None = _TRAIN.optimizer,
        lr: float | None = _TRAIN.lr,
        batch_size: int | None = _TRAIN.batch_size,
        max_epochs: int = _TRAIN.max_epochs,
        eval_every: float | None = _TRAIN.eval_every,
        patience: int = _TRAIN.patience,
        embedding_l2: float | None = _TRAIN.embedding_l2,
        weight_decay: float = _TRAIN.weight_decay,
        min_count: int | Mapping[str, int] = _DATA.min_count,
        kinds: Mapping[str, str] | None = None,
        numeric: Numeric | Mapping[str, Numeric] = _DATA.numeric,
        handle_unknown: str = _DATA.handle_unknown,
        validation: float = _SPLIT.validation,
        class_weight: str | Mapping[Any, float] | None = None,
        config: Mapping[str, Any] | None = None,
        device: str = _TRAIN.device,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        """`fielddep settings --model NAME` has the settings of a model.

        Args:
            model: name of the model, such as "fm" or "deepfm"; `fielddep settings --help` lists them.
            optimizer: adagrad or adam; None: the one that suits the model.
            lr: learning rate; None: from model and optimizer.
            batch_size: rows per step; None: from the number of rows.
            max_epochs: most passes over the training rows.
            eval_every: evaluations per epoch; None: 4.
            patience: evaluations without improvement before training stops.
            embedding_l2: ridge on embeddings; None: from model and number of rows.
            weight_decay: decay of all weights per step, times the learning rate.
            min_count: values seen fewer times in training share one id; one number, or one per field.
            kinds: "categorical", "numerical", "both", "date", "list" or "text" by column, where the inferred kind is
                wrong.
            numeric: how numerical fields are encoded, "quantile", "scale" or "log2"; one word, or one per field.
            handle_unknown: what a value never seen in training does: it counts as rare ("rare"), or is an "error".
            validation: share of the rows held out to know when to stop, unless `fit` gets an `eval_set`.
            class_weight: for classifiers, "balanced" or a dict of class and weight, 1 for a class that it does not
                name. Multiplied into the weights of the rows of X, not into those of `eval_set`. It shifts all
                probabilities towards classes of large weight.
            config: any further settings by dotted name, such as {"model.d_embed": 16}; they
                override the other arguments.
            device: torch device, such as "cpu" or "cuda".
            n_jobs: CPU threads in training, -1 for all processors; None: torch's choice.
            random_state: seed of split, weights and shuffling; None means 0, so that fitting is reproducible.
            verbose: print a line per evaluation to stderr.
        """
        _set_parameters(self, locals())

    def _model_settings(self) -> dict[str, Any]:
        return {"model.name": self.model}


class BaselineClassifier(TableClassifier, _BaselineEstimator):
    """Any baseline, for two or more classes.

    Example:
        >>> X = pl.DataFrame({"colour": ["red", "blue"] * 40, "shape": ["disc", "disc", "cube", "cube"] * 20})
        >>> y = ["good", "bad", "bad", "good"] * 20
        >>> model = BaselineClassifier("fm", max_epochs=60, patience=60).fit(X, y)
        >>> model.predict(pl.DataFrame({"colour": ["red", "red"], "shape": ["disc", "cube"]})).tolist()
        ['good', 'bad']
    """


class BaselineRegressor(TableRegressor, _BaselineEstimator):
    """Any baseline, for numbers."""

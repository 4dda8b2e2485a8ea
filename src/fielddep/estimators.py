"""Estimators: a thin scikit-learn face of the library.

They take pandas, Polars and numpy, encode by themselves, and hold out validation rows when none are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted

from fielddep.bundle import Bundle
from fielddep.config import Config, DataConfig, ModelConfig, Numeric, SplitConfig, TrainConfig
from fielddep.data.splits import Split, split_rows
from fielddep.data.target import KnownTask, class_texts
from fielddep.data.values import canonical
from fielddep.errors import SchemaError, UserError
from fielddep.estimator_input import TARGET, WEIGHT, Rows, check_target, frame_of, has_names, stack
from fielddep.explain.dependencies import Explanation, explain_rows, global_dependencies
from fielddep.fitting import fit_table
from fielddep.predictor import Predictor
from fielddep.training.callbacks import ProgressBar

_DATA, _SPLIT, _MODEL, _TRAIN = DataConfig(), SplitConfig(), ModelConfig(), TrainConfig()


class _MDLEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share. See `fielddep settings` for the meaning of every argument.

    Args:
        config: any further settings by dotted path, for instance {"model.mu_start": "one"}.
        random_state: seed of split, weights and shuffling; None means 0, so that fitting is reproducible.
        verbose: show a progress bar on a terminal.
    """

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
        optimizer: str = _TRAIN.optimizer,
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
        config: Mapping[str, Any] | None = None,
        device: str = _TRAIN.device,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.d_embed = d_embed
        self.n_inner_steps = n_inner_steps
        self.inner_lr = inner_lr
        self.sparsity = sparsity
        self.dependencies = dependencies
        self.hidden = hidden
        self.batch_norm = batch_norm
        self.dropout = dropout
        self.first_order = first_order
        self.optimizer = optimizer
        self.lr = lr
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.eval_every = eval_every
        self.patience = patience
        self.embedding_l2 = embedding_l2
        self.weight_decay = weight_decay
        self.min_count = min_count
        self.kinds = kinds
        self.numeric = numeric
        self.handle_unknown = handle_unknown
        self.validation = validation
        self.config = config
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, rows: Rows, eval_set: tuple[Any, Any] | None, task: KnownTask) -> None:
        rows.check_size()
        table = rows.table()
        config = self._config(task, weighted=rows.weight is not None)
        if eval_set is None:
            split = split_rows(table, config.split, TARGET)
        else:
            extra = Rows.of(self, eval_set[0], eval_set[1], None if rows.weight is None else 1.0)
            n_rows, n_extra = len(table), len(extra.fields)
            split = Split(train=np.arange(n_rows), validation=np.arange(n_rows, n_rows + n_extra), test=np.arange(0))
            table = stack(table, extra.table())
        fitted = fit_table(table, config, split=split, callbacks=[ProgressBar()] if self.verbose else [])
        self._adopt(Bundle(config=fitted.config, encoder=fitted.encoder, model=fitted.model))
        self.n_features_in_ = rows.fields.width
        if rows.named:
            self.feature_names_in_ = np.array(rows.fields.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.history_ = [evaluation.to_json() for evaluation in fitted.history]
        self.n_iter_ = fitted.history[-1].step

    def save(self, folder: str | Path) -> None:
        """Write the model as a bundle."""
        check_is_fitted(self, "bundle_")
        self.bundle_.save(folder)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Any:
        """A fitted estimator from a bundle; its settings are those of the bundle's config, not its parameters."""
        bundle = Bundle.load(folder, device=device)
        target = bundle.encoder.schema.target
        assert target is not None  # `Bundle.load` refuses a bundle without one
        if (target.task == "regression") != issubclass(cls, RegressorMixin):
            raise UserError(f"{cls.__name__} cannot load {folder}: that model's task is {target.task}")
        estimator = cls(device=device)
        estimator._adopt(bundle)
        if bundle.config.data.fields is None:
            schema = bundle.encoder.schema
            estimator.n_features_in_ = len(schema.fields) + len(schema.left_out) + len(bundle.config.data.exclude)
        return estimator

    def field_dependencies(self) -> pl.DataFrame:
        """The learned m x m table W(0): one row a source field, one column a dependent field."""
        check_is_fitted(self, "bundle_")
        return global_dependencies(self.bundle_).to_frame()

    def explain(self, X: Any) -> Explanation:
        """Refined dependencies, weights mu and dependency loss of every row and step."""
        check_is_fitted(self, "bundle_")
        return explain_rows(self.bundle_, self.bundle_.encoder.encode(self._check(X)))

    def embeddings(self, field: str) -> pl.DataFrame:
        """Embedding of every value of a field: value, training count, and one column a dimension."""
        check_is_fitted(self, "bundle_")
        encoder, model = self.bundle_.encoder, self.bundle_.model
        values = encoder.values(field)
        position = encoder.schema.field_names.index(field)
        start = encoder.layout.offsets[position]
        table = dict(model.tables())["embedding"]
        weight = table.weight.detach()[start : start + len(values)].cpu().numpy()
        columns = {f"e{d}": weight[:, d] for d in range(weight.shape[1])}
        return pl.DataFrame({"value": values, "count": encoder.counts[position], **columns})

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that text and missing values are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _adopt(self, bundle: Bundle) -> None:
        self.bundle_ = bundle
        self.predictor_ = Predictor(bundle, device=self.device)

    def _predict_frame(self, X: Any) -> pl.DataFrame:
        check_is_fitted(self, "bundle_")
        return self.predictor_.predict(self._check(X))

    def _check(self, X: Any) -> pl.DataFrame:
        """The table to predict; columns without names must be as many as in training."""
        table = frame_of(X)
        expected = getattr(self, "n_features_in_", table.width)
        if not has_names(X) and table.width != expected:
            raise SchemaError(
                f"X has {table.width} features, but {type(self).__name__} is expecting {expected} features as input"
            )
        return table

    def _config(self, task: KnownTask, *, weighted: bool) -> Config:
        seed = self._seed()
        names = {
            "model": ("d_embed", "n_inner_steps", "inner_lr", "sparsity", "dependencies", "hidden", "batch_norm",
                      "dropout", "first_order"),
            "train": ("optimizer", "lr", "batch_size", "max_epochs", "eval_every", "patience", "embedding_l2",
                      "weight_decay", "device"),
            "data": ("min_count", "numeric", "handle_unknown"),
            "split": ("validation",),
        }  # fmt: skip
        settings = {f"{section}.{name}": getattr(self, name) for section in names for name in names[section]}
        settings |= {
            "data.target": TARGET,
            "data.weight": WEIGHT if weighted else None,
            "data.task": task,
            "data.kinds": dict(self.kinds or {}),
            "split.method": "stratified",  # held-out rows keep the shares of the classes
            "split.test": 0.0,
            "split.seed": seed,
            "train.seed": seed,
        }
        return Config().replace({**settings, **(self.config or {})})

    def _seed(self) -> int:
        if self.random_state is None:
            return 0
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(self.random_state.randint(2**31 - 1))


class MDLClassifier(ClassifierMixin, _MDLEstimator):  # type: ignore[misc]
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> MDLClassifier:
        """Train on a table; see `MDLRegressor.fit` for the arguments. Labels may be of any type."""
        rows = Rows.of(self, X, y, sample_weight)
        check_classification_targets(rows.target)
        self.classes_ = np.unique(rows.target)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise SchemaError(
                f"a classifier needs at least two classes in y; given one class, {only!r}; check the target"
            )
        if eval_set is not None:
            self._check_labels(check_target(self, eval_set[1]))
        self._fit(rows, eval_set, "binary" if len(self.classes_) == 2 else "multiclass")
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probability of every class (rows, classes)."""
        frame = self._predict_frame(X)
        values = frame.drop("prediction").to_numpy().astype(np.float64)
        values = values[:, self._class_order()]
        return values / values.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Likeliest class of every row."""
        probabilities = self.predict_proba(X)
        likeliest: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return likeliest

    def _check_labels(self, labels: npt.NDArray[Any]) -> None:
        """Refuse validation rows of a class that the model cannot learn."""
        known = canonical(pl.Series(self.classes_.tolist()))
        texts = canonical(pl.Series(labels.tolist(), strict=False)).unique(maintain_order=True)
        unknown = texts.filter(~texts.is_in(known.implode())).head(5).to_list()
        if unknown:
            raise SchemaError(
                f"labels of eval_set must be classes of y ({', '.join(known.head(10))}); given also "
                f"{', '.join(map(repr, unknown))}; remove these rows"
            )

    def _class_order(self) -> list[int]:
        """Position of every label of `classes_` among the bundle's classes, which may be typed otherwise."""
        target = self.predictor_.target
        texts = list(class_texts(target.classes))
        return [texts.index(text) for text in canonical(pl.Series(self.classes_.tolist())).to_list()]

    def _adopt(self, bundle: Bundle) -> None:
        super()._adopt(bundle)
        if not hasattr(self, "classes_"):
            self.classes_ = np.array(self.predictor_.target.classes)


class MDLRegressor(RegressorMixin, _MDLEstimator):  # type: ignore[misc]
    """Meta-Dependency Learning for numbers.

    Example:
        >>> X = pl.DataFrame({"user": ["ann", "bob"] * 40, "film": ["x", "x", "y", "y"] * 20})
        >>> model = MDLRegressor(max_epochs=80, patience=80).fit(X, [5.0, 1.0, 1.0, 5.0] * 20)
        >>> model.predict(X[:1]).shape
        (1,)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> MDLRegressor:
        """Train on a table.

        Args:
            X: pandas, Polars or numpy table, one column a field.
            y: target of every row.
            sample_weight: weight of every row, 0 or more; a row of weight 0 counts as absent.
            eval_set: (X, y) of validation rows, all of weight 1; by default a share `validation` of the rows is held
                out.
        """
        rows = Rows.of(self, X, y, sample_weight)
        numbers = check_array(rows.target, ensure_2d=False, dtype=np.float64)
        self._fit(replace(rows, target=numbers), eval_set, "regression")
        return self

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Value of every row."""
        return self._predict_frame(X)["prediction"].to_numpy().astype(np.float64)

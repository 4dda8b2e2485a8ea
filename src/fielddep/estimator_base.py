"""What all estimators share: a thin scikit-learn face of the library.

They take pandas, Polars and numpy, encode by themselves, and hold out validation rows when none are given.
"""

from __future__ import annotations

from abc import abstractmethod
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
from fielddep.config import Config
from fielddep.data.splits import Split, split_rows
from fielddep.data.target import KnownTask, class_texts
from fielddep.data.values import canonical
from fielddep.errors import SchemaError, UserError
from fielddep.estimator_explain import ExplainedEstimator
from fielddep.estimator_input import Rows, check_target, frame_of, has_names, stack
from fielddep.fitting import fit_table
from fielddep.predictor import Predictor
from fielddep.training.callbacks import ProgressBar

SHARED_SETTINGS = (
    *("train.optimizer", "train.lr", "train.batch_size", "train.max_epochs", "train.eval_every", "train.patience"),
    *("train.embedding_l2", "train.weight_decay", "train.device"),
    *("data.min_count", "data.numeric", "data.handle_unknown", "split.validation"),
)
"""Settings that every estimator has a parameter for, called as the last part of the path."""


class TableEstimator(ExplainedEstimator, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Fitting, predicting, explaining and saving, whatever the model."""

    def _fit(self, rows: Rows, eval_set: tuple[Any, Any] | None, task: KnownTask) -> None:
        rows.check_size()
        table = rows.table()
        config = self._config(rows, task)
        if eval_set is None:
            split = split_rows(table, config.split, rows.target_name)
        else:
            extra = Rows.of(self, eval_set[0], eval_set[1], None if rows.weight is None else 1.0)
            n_rows, n_extra = len(table), len(extra.fields)
            split = Split(train=np.arange(n_rows), validation=np.arange(n_rows, n_rows + n_extra), test=np.arange(0))
            table = stack(table, replace(extra, target_name=rows.target_name, weight_name=rows.weight_name).table())
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

    def _config(self, rows: Rows, task: KnownTask) -> Config:
        seed = self._seed()
        settings = {path: getattr(self, path.partition(".")[2]) for path in SHARED_SETTINGS}
        settings |= self._model_settings()
        settings |= {
            "data.target": rows.target_name,
            "data.weight": None if rows.weight is None else rows.weight_name,
            "data.task": task,
            "data.kinds": dict(self.kinds or {}),
            "split.method": "stratified",  # held-out rows keep the shares of the classes
            "split.test": 0.0,
            "split.seed": seed,
            "train.seed": seed,
        }
        return Config().replace({**settings, **(self.config or {})})

    @abstractmethod
    def _model_settings(self) -> dict[str, Any]:
        """Settings of the model, by dotted path."""

    def _seed(self) -> int:
        if self.random_state is None:
            return 0
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(self.random_state.randint(2**31 - 1))


class TableClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    """An estimator of two or more classes.

    Attributes:
        classes_: labels, sorted; columns of `predict_proba` follow them.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> Any:
        """Train on a table; see `TableRegressor.fit` for the arguments. Labels may be of any type."""
        rows = Rows.of(self, X, y, sample_weight)
        check_classification_targets(rows.target)
        self.classes_ = np.unique(rows.target)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise SchemaError(
                f"a classifier needs at least two classes in y; given one class, {only!r}; check the target"
            )
        self._refuse_equal_labels()
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

    def _refuse_equal_labels(self) -> None:
        """Refuse labels that are one class to a model, as it takes one value in several spellings for the same."""
        spellings: dict[str, list[Any]] = {}
        for label, text in zip(self.classes_.tolist(), canonical(pl.Series(self.classes_.tolist())), strict=True):
            spellings.setdefault(text, []).append(label)
        equal = [labels for labels in spellings.values() if len(labels) > 1]
        if equal:
            raise SchemaError(
                "labels of different classes must differ as values; given "
                f"{'; '.join(', '.join(map(repr, labels)) for labels in equal[:5])}, which are the same value written "
                "differently; write each class in one way"
            )

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


class TableRegressor(RegressorMixin, TableEstimator):  # type: ignore[misc]
    """An estimator of numbers."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> Any:
        """Train on a table.

        Args:
            X: pandas, Polars or numpy table, one column a field.
            y: target of every row. The model calls it by its own name, or y where it has none: a table that the saved
                model is to be evaluated on holds it in the column of that name.
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

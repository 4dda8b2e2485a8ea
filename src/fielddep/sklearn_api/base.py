"""Base classes of the estimators: scikit-learn's interface on top of the library.

Estimators take pandas, Polars and numpy tables, encode them, and hold out validation rows if none are given.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_consistent_length, check_is_fitted

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.artifacts.run import resolve_bundle
from fielddep.config.metrics import KnownTask
from fielddep.config.settings import Config
from fielddep.encoding.rows import EncodedRows, sample_rows
from fielddep.encoding.target import class_texts
from fielddep.encoding.values import canonical
from fielddep.errors import ConfigError, SchemaError, TableError, UserError
from fielddep.explain.curves import learning_curve
from fielddep.explain.dependencies import global_dependencies, learns_dependencies
from fielddep.explain.hiding import Effects, hide_fields
from fielddep.explain.importance import N_REPEATS, FieldImportance, permutation_importance
from fielddep.explain.overview import OverviewFolder, overview_rows, overview_table
from fielddep.explain.rows import cell_texts
from fielddep.sklearn_api.callbacks import Callback, observer_of
from fielddep.sklearn_api.features import FeatureTransformer
from fielddep.sklearn_api.input import FitInput, check_target, frame_of, has_names, n_threads, stack
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import fit

SHARED_SETTINGS = (
    *("train.optimizer", "train.lr", "train.batch_size", "train.max_epochs", "train.eval_every", "train.patience"),
    *("train.embedding_l2", "train.weight_decay", "train.device"),
    *("data.min_count", "data.numeric", "data.handle_unknown", "split.validation"),
)
"""Settings that are parameters of every estimator, under the last part of their names."""
IMPORTANCE_ROWS = 10_000
"""Most validation rows that an estimator keeps for `feature_importances_`."""


class TableEstimator(FeatureTransformer, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Fitting, predicting, explaining and saving, for any model."""

    bundle_: Bundle

    def _fit(
        self, rows: FitInput, validation: FitInput | None, task: KnownTask, callbacks: Iterable[Callback] | None
    ) -> None:
        rows.check_size()
        if validation is None:
            table, parts = rows.table(), None
        else:
            if rows.weight is not None or validation.weight is not None:
                rows, validation = rows.with_weights(), validation.with_weights()
            table = stack(rows.table(), validation.with_names_of(rows).table())
            parts = np.repeat([0, 1], [len(rows.fields), len(validation.fields)]).astype(np.uint8)
        observer = observer_of(callbacks, verbose=self.verbose)
        trained = fit(table, self._config(rows, task), parts=parts, observer=observer)
        self._adopt(Bundle.of(trained))
        self.n_features_in_ = rows.fields.width
        if rows.named:
            self.feature_names_in_ = np.array(rows.fields.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._validation_rows = sample_rows(trained.prepared.parts["validation"].chunks(), IMPORTANCE_ROWS).rows
        self.__dict__.pop("feature_importances_", None)
        self.history_ = [evaluation.to_json() for evaluation in trained.history]
        self.n_iter_ = trained.history[-1].step

    @property
    def unknown_(self) -> dict[str, float]:
        """Share of unknown values of every field in the last prediction; empty before the first.

        Unknown means never seen in training, or in fewer than `min_count` rows. A prediction warns of more than 10 %.
        """
        self._fitted_bundle()
        return self.predictor_.unknown

    def save(self, folder: str | Path) -> None:
        """Write the model as a bundle."""
        self._fitted_bundle().save(folder)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Any:
        """A fitted estimator from a bundle or run; its settings are in the bundle, not in its parameters."""
        bundle = Bundle.load(resolve_bundle(folder), device=device)
        target = bundle.encoder.schema.target
        assert target is not None  # `Bundle.load` refuses a bundle without one
        if (target.task == "regression") != issubclass(cls, RegressorMixin):
            raise UserError(f"{cls.__name__} cannot load {folder}: that model's task is {target.task}")
        estimator = cls(device=device)
        estimator._adopt(bundle)
        if bundle.config.data.fields is None:
            schema = bundle.encoder.schema
            estimator.n_features_in_ = len(schema.columns) + len(schema.skipped) + len(bundle.config.data.exclude)
        return estimator

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that text and missing values are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    @cached_property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """How much the loss rises if the values of a column of X are shuffled; 0 if it falls, or if that is no field.

        A column of dates has the sum over its parts. Computed when first asked for, on at most 10,000 validation rows;
        `importance` takes any rows.

        Raises:
            AttributeError: the estimator was loaded, which has no validation rows.
        """
        bundle = self._fitted_bundle()
        if not hasattr(self, "_validation_rows"):
            raise AttributeError("a loaded estimator has no validation rows for feature_importances_; use importance")
        found = permutation_importance(bundle, self._validation_rows)
        of_column = dict.fromkeys(bundle.encoder.schema.columns, 0.0)
        for field, rise in zip(bundle.encoder.schema.fields, found.mean_F(found.metrics[0]), strict=True):
            of_column[field.column] += float(rise)
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        # By chance a loss can fall; scikit-learn's selectors would take the absolute value.
        return np.array([max(of_column.get(name, 0.0), 0.0) for name in names])

    def importance(
        self, X: Any, y: Any, sample_weight: Any = None, *, n_repeats: int = N_REPEATS, seed: int = 0
    ) -> FieldImportance:
        """How much worse the metrics become if the values of a field are shuffled.

        Args:
            X: rows, ideally held out from training.
            y: their targets.
            sample_weight: weight of every row.
            n_repeats: shuffles per field.
            seed: seed of the shuffles.
        """
        if y is None:
            raise SchemaError("importance needs the targets of the rows; given y = None. Give y")
        return permutation_importance(
            self._fitted_bundle(), self._encode(X, y, sample_weight), n_repeats=n_repeats, seed=seed
        )

    def hide_fields(self, X: Any) -> Effects:
        """How the prediction of every row changes if one field is hidden, for each field."""
        return hide_fields(self._fitted_bundle(), self._encode(X), values=self._cell_texts(X))

    def write_explanations(
        self, folder: str | Path, X: Any, y: Any = None, *, rows: Sequence[int] = (0,), seed: int = 0
    ) -> list[str]:
        """Write the numbers and pictures of `fielddep explain --out` into a folder.

        Args:
            folder: created if absent.
            X: rows; groups and, if there is `y`, importance are computed from all of them.
            y: their targets.
            rows: positions of the rows to explain one by one.
            seed: seed of groups and shuffles.

        Returns:
            Names of the files.
        """
        bundle, table = self._fitted_bundle(), self._encode(X, y)
        absent = [row for row in rows if not 0 <= row < len(table)]
        if absent:
            raise TableError(f"row {absent[0]} does not exist; X has {len(table):,} rows, 0 to {len(table) - 1}")
        out = OverviewFolder(Path(folder))
        dependencies = global_dependencies(bundle) if learns_dependencies(bundle) else None
        history = getattr(self, "history_", None)  # an estimator that was loaded has none
        curve = None if history is None else learning_curve([Evaluation(**values) for values in history])
        out.write_model(dependencies, curve)
        chosen = table.take(np.array(rows, dtype=np.int64))
        found = overview_rows(bundle, chosen, rows, values=self._cell_texts(X, rows))
        out.write_rows(found, dependencies)
        out.write_table(overview_table(bundle, table, seed=seed))
        return out.written

    def _adopt(self, bundle: Bundle) -> None:
        self.bundle_ = bundle
        self.predictor_ = Predictor(bundle, device=self.device)

    def _predict_frame(self, X: Any) -> pl.DataFrame:
        self._fitted_bundle()
        return self.predictor_.predict(self._check(X))

    def _check(self, X: Any) -> pl.DataFrame:
        """The table to predict; an array has the columns of training, in their order."""
        table = frame_of(X)
        if has_names(X):
            return table
        expected = getattr(self, "n_features_in_", table.width)
        if table.width != expected:
            raise SchemaError(
                f"X has {table.width} features, but {type(self).__name__} is expecting {expected} features as input"
            )
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return table
        warnings.warn(
            f"X does not have valid feature names, but {type(self).__name__} was fitted with feature names. Its "
            "columns are taken by position",
            UserWarning,
            stacklevel=2,
        )
        return table.rename(dict(zip(table.columns, names, strict=True)))

    def _config(self, rows: FitInput, task: KnownTask) -> Config:
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
            "train.threads": None if self.n_jobs is None else n_threads(self.n_jobs),
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

    def _fitted_bundle(self) -> Bundle:
        check_is_fitted(self, "bundle_")
        return self.bundle_

    def _cell_texts(self, X: Any, rows: Sequence[int] | None = None) -> pl.DataFrame:
        """The cells of rows as text; of all rows, unless positions are given."""
        table = self._check(X)
        if rows is not None:
            table = table.select(pl.all().gather(list(rows)))
        return cell_texts(self._fitted_bundle().encoder, table)

    def _encode(self, X: Any, y: Any = None, sample_weight: Any = None) -> EncodedRows:
        """Encoded rows, with targets and weights if given."""
        encoder = self._fitted_bundle().encoder
        table = self._check(X)
        rows, _ = encoder.encode(table)
        if y is None:
            return rows
        target = encoder.schema.target
        assert target is not None  # no estimator is fitted without one
        labels = check_target(self, y)
        check_consistent_length(table, labels)
        found = target.encode(pl.Series(target.name, labels.tolist(), strict=False), encoder.missing_values)
        if sample_weight is None:
            return rows.with_arrays(target=found)
        weights = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
        return rows.with_arrays(target=found, weight=weights.astype(np.float32))


class TableClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    """An estimator of two or more classes.

    Attributes:
        classes_: labels, sorted; columns of `predict_proba` follow them.
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_sample_weight: Any = None,
        callbacks: Iterable[Callback] | None = None,
    ) -> Any:
        """Train on a table; see `TableRegressor.fit` for the arguments. Labels can have any type."""
        rows = FitInput.of(self, X, y, sample_weight)
        check_classification_targets(rows.target)
        self.classes_ = np.unique(rows.target)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise SchemaError(
                f"a classifier needs at least two classes in y; given one class, {only!r}. Check the target"
            )
        self._refuse_equal_labels()
        if self.class_weight is not None:
            rows = rows.with_class_weight(self.class_weight)
        validation = FitInput.of_eval_set(self, eval_set, eval_sample_weight)
        if validation is not None:
            self._check_labels(validation.target)
        self._fit(rows, validation, "binary" if len(self.classes_) == 2 else "multiclass", callbacks)
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
        """Refuse labels that are spellings of one value, such as 1 and "1.0", and so one class for a model."""
        spellings: dict[str, list[Any]] = {}
        for label, text in zip(self.classes_.tolist(), canonical(pl.Series(self.classes_.tolist())), strict=True):
            spellings.setdefault(text, []).append(label)
        equal = [labels for labels in spellings.values() if len(labels) > 1]
        if equal:
            raise SchemaError(
                "labels of different classes must differ as values; given "
                f"{'; '.join(', '.join(map(repr, labels)) for labels in equal[:5])}, which are spellings of the same "
                "value. Write each class in one way"
            )

    def _check_labels(self, labels: npt.NDArray[Any]) -> None:
        """Refuse validation rows of a class that the model cannot learn."""
        known = canonical(pl.Series(self.classes_.tolist()))
        texts = canonical(pl.Series(labels.tolist(), strict=False)).unique(maintain_order=True)
        unknown = texts.filter(~texts.is_in(known.implode())).head(5).to_list()
        if unknown:
            raise SchemaError(
                f"labels of eval_set must be classes of y ({', '.join(known.head(10))}); given also "
                f"{', '.join(map(repr, unknown))}. Remove these rows"
            )

    def _class_order(self) -> list[int]:
        """Position of every label of `classes_` among the bundle's classes, which may have another type."""
        texts = class_texts(self.predictor_.target.classes)
        return [texts.index(text) for text in class_texts(self.classes_.tolist())]

    def _adopt(self, bundle: Bundle) -> None:
        super()._adopt(bundle)
        if not hasattr(self, "classes_"):
            self.classes_ = np.array(self.predictor_.target.classes)


class TableRegressor(RegressorMixin, TableEstimator):  # type: ignore[misc]
    """An estimator of numbers."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_sample_weight: Any = None,
        callbacks: Iterable[Callback] | None = None,
    ) -> Any:
        """Train on a table.

        Args:
            X: pandas, Polars or numpy table, one column per field.
            y: target of every row. A table to evaluate the saved model on needs a column of its name, or of the name y
                if it has none.
            sample_weight: weight of every row, 0 or more; rows of weight 0 are dropped.
            eval_set: validation rows, [(X, y)] or (X, y), which decide when to stop. All rows of `X` are then training
                rows; by default, the share `validation` of them is held out.
            eval_sample_weight: [w], the weight of every row of `eval_set`; by default 1.
            callbacks: observers of the training, or functions that are called with every evaluation. What they raise
                ends the training.

        Raises:
            SchemaError: `eval_set` holds more than one pair, among others.
        """
        if self.class_weight is not None:
            raise ConfigError(f"class_weight is for classifiers; given {self.class_weight!r}. Use sample_weight")
        rows = FitInput.of(self, X, y, sample_weight)
        numbers = check_array(rows.target, ensure_2d=False, dtype=np.float64)
        validation = FitInput.of_eval_set(self, eval_set, eval_sample_weight)
        self._fit(replace(rows, target=numbers), validation, "regression", callbacks)
        return self

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Value of every row."""
        return self._predict_frame(X)["prediction"].to_numpy().astype(np.float64)

"""Embeddings of an estimator: of values, and with the dependencies of rows as features of another estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.rows import EncodedRows
from fielddep.explain.features import feature_names, row_features
from fielddep.explain.neighbours import NearestValues, nearest_values, value_embeddings


class FeatureTransformer(TransformerMixin):  # type: ignore[misc]  # scikit-learn has no types
    """`transform`, through scikit-learn `fit_transform` and `set_output`, and the embeddings behind them."""

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """Features of every row: the embedding of each field and, for MDL, the refined dependencies of the row.

        `get_feature_names_out` has their names; `set_output(transform="pandas")` or "polars" gives a frame. Crosses are
        not among them.

        Raises:
            UserError: the model has no embeddings.
        """
        bundle = self._fitted_bundle()
        return row_features(bundle, self._encode(X))

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Names of the columns of `transform`; `input_features` may only repeat the names of the columns of X."""
        bundle = self._fitted_bundle()
        if input_features is not None:
            _check_feature_names_in(self, input_features)
        return np.array(feature_names(bundle), dtype=object)

    def nearest_values(self, field: str, value: object, n: int = 10) -> NearestValues:
        """The values of a field most similar to a given one, by the cosine of their embeddings."""
        return nearest_values(self._fitted_bundle(), field, value, n=n)

    def embeddings(self, field: str) -> pl.DataFrame:
        """Embedding of every value of a field: value, training count, and one column per dimension."""
        values, counts, table_VD = value_embeddings(self._fitted_bundle(), field)
        columns = {f"e{d}": table_VD[:, d] for d in range(table_VD.shape[1])}
        return pl.DataFrame({"value": values, "count": counts, **columns})

    def _fitted_bundle(self) -> Bundle:
        raise NotImplementedError

    def _encode(self, X: Any, y: Any = None, sample_weight: Any = None) -> EncodedRows:
        raise NotImplementedError

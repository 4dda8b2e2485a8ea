"""LightGBM on the rows that a model was trained, stopped and tested on, for the table of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fielddep.errors import MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fielddep.fitting import Prepared

MAX_ROUNDS, PATIENCE = 1000, 30
SETTINGS = {"objective": "binary", "metric": "binary_logloss", "verbosity": -1, "seed": 0, "num_threads": 1}
"""LightGBM's own defaults, on one thread; only the number of trees is found, on the validation rows."""
N_RESERVED_IDS = 2


def lightgbm_metrics(prepared: Prepared) -> dict[str, float]:
    """Train on the training rows of a binary target, stop early on the validation rows, measure on the test rows.

    Raises:
        MissingExtraError: when LightGBM is not installed.
    """
    import torch

    from fielddep.training.metrics import Metrics

    lgb = import_lightgbm()
    booster = lgb.train(
        SETTINGS,
        _dataset(prepared, "train"),
        MAX_ROUNDS,
        valid_sets=[_dataset(prepared, "validation")],
        callbacks=[lgb.early_stopping(PATIENCE, verbose=False)],
    )
    test = prepared.parts["test"]
    logits = booster.predict(_codes(prepared, "test"), raw_score=True, num_iteration=booster.best_iteration)
    metrics = Metrics(prepared.target)
    assert test.target_R is not None
    metrics.update(torch.from_numpy(logits).unsqueeze(1), test.target_R.double(), test.weight_R)
    return metrics.result()


def _dataset(prepared: Prepared, part: str) -> Any:
    target_R = prepared.parts[part].target_R
    assert target_R is not None
    return import_lightgbm().Dataset(
        _codes(prepared, part),
        target_R.numpy(),
        feature_name=list(prepared.encoder.schema.field_names),
        categorical_feature=_categorical(prepared),
    )


def _categorical(prepared: Prepared) -> list[str]:
    return [field.name for field in prepared.encoder.schema.fields if field.kind == "categorical"]


def _codes(prepared: Prepared, part: str) -> npt.NDArray[np.float64]:
    """Ids of the values; NaN, which LightGBM takes for missing, where a value is missing or unknown."""
    import numpy as np

    ids_RF = prepared.parts[part].ids_RF.numpy()[:, : len(prepared.encoder.schema.fields)]
    return np.where(ids_RF < N_RESERVED_IDS, np.nan, ids_RF - N_RESERVED_IDS)


def import_lightgbm() -> Any:
    """LightGBM, or an error that says how to install it."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("the demo compares with LightGBM; pip install 'fielddep[demo]'") from None
    return lightgbm

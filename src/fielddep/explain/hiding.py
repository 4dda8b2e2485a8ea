"""Hiding: what predictions lose without a field, or without refinement. Any model.

Cells are encoded one by one, so changing ids and numbers of a field is the same as changing its raw values and
encoding again. Crosses of the field are looked up again from the changed ids.

Shape legend: R rows, F what is taken away one at a time (fields), C outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.errors import UserError
from fielddep.explain.curves import model_logits
from fielddep.explain.dependencies import dependency_model
from fielddep.explain.rows import Floats, target_of, value_texts
from fielddep.nn.mdl import MDL
from fielddep.nn.model import predictions


def hide_field(encoder: Encoder, rows: EncodedRows, position: int) -> EncodedRows:
    """Rows in which one field is missing, as if its cells were empty.

    The encoder decides what an empty cell is: the missing id; the rare id where training held no missing value, as
    nothing trained the missing id; the mean of a number given as `value x vector`.
    """
    empty = encoder.field_encoders[position].encode(pl.Series([None], dtype=pl.String))
    ids_R = np.repeat(empty.ids, len(rows))
    return _with_field(
        encoder, rows, position, ids_R, None if empty.numbers is None else empty.numbers.repeat(len(rows))
    )


def permute_field(encoder: Encoder, rows: EncodedRows, position: int, order_R: npt.NDArray[np.int64]) -> EncodedRows:
    """Rows in which one field has the values of other rows: row r gets the value of row `order_R[r]`."""
    numbers_R = None
    if position in rows.layout.numerical:
        numbers_R = rows.numbers_RN[order_R, rows.layout.numerical.index(position)]
    return _with_field(encoder, rows, position, rows.ids_RF[order_R, position], numbers_R)


def _with_field(
    encoder: Encoder,
    rows: EncodedRows,
    position: int,
    ids_R: npt.NDArray[np.int32],
    numbers_R: npt.NDArray[np.float32] | None,
) -> EncodedRows:
    ids_RF = rows.ids_RF.copy()
    ids_RF[:, position] = ids_R
    for column, cross in enumerate(encoder.crosses, start=len(encoder.field_encoders)):
        if position in (cross.left, cross.right):
            ids_RF[:, column] = cross.encode(ids_RF)
    if numbers_R is None:
        return rows.with_arrays(ids=ids_RF)
    numbers_RN = rows.numbers_RN.copy()
    numbers_RN[:, rows.layout.numerical.index(position)] = numbers_R
    return rows.with_arrays(ids=ids_RF, numbers=numbers_RN)


REFINEMENT = "(refinement)"
"""Stands where a field's name would, when refinement is switched off rather than a field hidden."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Effects:
    """Predictions of complete rows, and with one thing after another taken away.

    A prediction is the probability of one class, or the value of a regression. The class is the positive one of two,
    and of more the likeliest of the complete row. An effect is the prediction of the complete row minus that without:
    above 0 where what is taken away had raised it.

    Attributes:
        names: what is taken away: fields, or `REFINEMENT`.
        values: what the rows hold, as text, one column a field.
        classes: class of every row whose probability is given; empty for regression.
        prediction_R: predictions of the complete rows.
        without_RF: predictions without each of `names`.
        logit_R: log-odds of the complete rows; None for regression.
        logit_without_RF: log-odds without each of `names`; None for regression.
    """

    names: tuple[str, ...]
    values: pl.DataFrame
    classes: tuple[object, ...]
    prediction_R: Floats
    without_RF: Floats
    logit_R: Floats | None
    logit_without_RF: Floats | None

    def __len__(self) -> int:
        return len(self.prediction_R)

    @property
    def effect_RF(self) -> Floats:
        """Prediction of the complete row minus that without each of `names`."""
        return self.prediction_R[:, np.newaxis] - self.without_RF

    @property
    def logit_effect_RF(self) -> Floats | None:
        """The same in log-odds, which do not flatten near 0 and 1; None for regression."""
        if self.logit_R is None or self.logit_without_RF is None:
            return None
        return self.logit_R[:, np.newaxis] - self.logit_without_RF

    @property
    def plotted_RF(self) -> Floats:
        """What figures show: effects on the log-odds, or on the value of a regression."""
        return self.effect_RF if self.logit_effect_RF is None else self.logit_effect_RF

    def to_frame(self) -> pl.DataFrame:
        """One line a row and thing: row, hidden, value, [class], prediction, without, effect, [logit_effect].

        The columns in brackets are absent for regression; `value` is null for refinement.
        """
        n_rows, n_names = self.without_RF.shape
        nothing = [None] * n_rows
        held = [self.values[name].to_list() if name in self.values.columns else nothing for name in self.names]
        columns: dict[str, object] = {
            "row": np.repeat(np.arange(n_rows), n_names),
            "hidden": pl.Series(list(self.names) * n_rows, dtype=pl.String),
            "value": pl.Series([text for texts in zip(*held, strict=True) for text in texts], dtype=pl.String),
        }
        if self.logit_R is not None:
            columns["class"] = pl.Series([str(label) for label in self.classes for _ in self.names], dtype=pl.String)
        columns |= {
            "prediction": np.repeat(self.prediction_R, n_names),
            "without": self.without_RF.ravel(),
            "effect": self.effect_RF.ravel(),
        }
        if self.logit_effect_RF is not None:
            columns["logit_effect"] = self.logit_effect_RF.ravel()
        return pl.DataFrame(columns)


def hide_fields(bundle: Bundle, rows: EncodedRows, *, values: pl.DataFrame | None = None) -> Effects:
    """What the prediction of every row loses when one field is hidden, for each field. See `hide_field`.

    Args:
        bundle: any model.
        rows: encoded rows.
        values: what the rows hold, see `rows.cell_texts`; by default what their ids show.
    """
    logits = (model_logits(bundle, hidden) for hidden in hidden_rows(bundle, rows))
    return _effects(bundle, rows, values, bundle.encoder.schema.field_names, logits)


def without_refinement(bundle: Bundle, rows: EncodedRows, *, values: pl.DataFrame | None = None) -> Effects:
    """What the prediction of every row loses when refinement is switched off: T = 0, the same weights.

    See `hide_fields` for the arguments.

    Raises:
        UserError: when the model does not refine.
    """
    return _effects(bundle, rows, values, (REFINEMENT,), iter([model_logits(unrefined(bundle), rows)]))


def hidden_rows(bundle: Bundle, rows: EncodedRows) -> Iterator[EncodedRows]:
    """The rows with the first field hidden, then with the second, and so on."""
    return (hide_field(bundle.encoder, rows, position) for position in range(len(bundle.encoder.field_encoders)))


def refines(bundle: Bundle) -> bool:
    """Whether the model refines dependencies for every row."""
    return isinstance(bundle.model, MDL) and _takes_steps(bundle.model)


def unrefined(bundle: Bundle) -> Bundle:
    """The same weights, shared and not copied, with no step of refinement.

    Raises:
        UserError: when the model does not refine.
    """
    model = dependency_model(bundle)
    if not _takes_steps(model):
        raise UserError(
            "this model does not refine dependencies, so refinement cannot be switched off. Train with "
            "model.dependencies = 'refined' and model.n_inner_steps above 0"
        )
    still = copy.copy(model)
    # A copied module shares the dict of its parts; a new dict keeps the model itself as it was.
    still._modules = dict(model._modules)
    still.refinement = copy.copy(model.refinement)
    still.refinement.n_inner_steps = 0
    return replace(bundle, model=still)


def _takes_steps(model: MDL) -> bool:
    return model.config.dependencies == "refined" and model.refinement.n_inner_steps > 0


def _effects(
    bundle: Bundle,
    rows: EncodedRows,
    values: pl.DataFrame | None,
    names: tuple[str, ...],
    changed: Iterator[torch.Tensor],
) -> Effects:
    target = target_of(bundle)
    logits_RC = model_logits(bundle, rows).double()
    classes_R = _followed_classes(logits_RC, target)
    predicted, odds = [_followed(logits_RC, classes_R, target)], [_log_odds(logits_RC, classes_R)]
    for without_RC in changed:
        predicted.append(_followed(without_RC.double(), classes_R, target))
        odds.append(_log_odds(without_RC.double(), classes_R))
    regression = target.task == "regression"
    return Effects(
        names=names,
        values=value_texts(bundle.encoder, rows) if values is None else values,
        classes=() if regression else tuple(target.classes[int(c)] for c in classes_R),
        prediction_R=predicted[0],
        without_RF=np.stack(predicted[1:], axis=1),
        logit_R=None if regression else odds[0],
        logit_without_RF=None if regression else np.stack(odds[1:], axis=1),
    )


def _followed_classes(logits_RC: torch.Tensor, target: Target) -> torch.Tensor:
    """The class of every row whose probability is looked at; not used for regression."""
    if target.task == "multiclass":
        return logits_RC.argmax(dim=1)
    return torch.ones(len(logits_RC), dtype=torch.int64)


def _followed(logits_RC: torch.Tensor, classes_R: torch.Tensor, target: Target) -> Floats:
    values = predictions(logits_RC, target)
    if target.task != "regression":
        values = values.gather(1, classes_R.unsqueeze(1))[:, 0]
    found: Floats = values.numpy()
    return found


def _log_odds(logits_RC: torch.Tensor, classes_R: torch.Tensor) -> Floats:
    """Log-odds of one class of every row: against all others together, where there are more than two."""
    if logits_RC.shape[1] == 1:
        odds_R = logits_RC[:, 0]
    else:
        own_R = logits_RC.gather(1, classes_R.unsqueeze(1))[:, 0]
        odds_R = own_R - logits_RC.scatter(1, classes_R.unsqueeze(1), -torch.inf).logsumexp(dim=1)
    odds: Floats = odds_R.numpy()
    return odds

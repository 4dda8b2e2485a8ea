"""Hiding: how predictions of any model change without a field, or without refinement.

Cells are encoded one by one, so changing the ids and numbers of a field equals changing its raw values and encoding
them again. Crosses are looked up again from the changed ids.

Shape legend: R rows, F fields (or refinement) hidden one at a time, C outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import EncodedField, stand_ins
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import EVIDENCE, IDS, MEASURES, NUMBERS, EncodedRows, RowArray, list_name
from fielddep.encoding.target import Target
from fielddep.encoding.vocabulary import FIRST_ID, RARE_ID
from fielddep.errors import UserError
from fielddep.explain.curves import model_logits
from fielddep.explain.dependencies import dependency_model
from fielddep.explain.rows import Floats, target_of, value_texts
from fielddep.nn.mdl import MDL
from fielddep.nn.model import predictions

Vector = npt.NDArray[np.float32]


def hide_field(encoder: Encoder, rows: EncodedRows, position: int) -> EncodedRows:
    """The rows with empty cells in one field.

    The encoder decides what an empty cell means: the missing id, the rare id if training had no missing value (nothing
    trained the missing id then), or the mean for a number given as `value x vector`.
    """
    empty = encoder.field_encoders[position].encode(pl.Series([None], dtype=pl.String))
    return with_field(encoder, rows, position, empty.take(np.zeros(len(rows), dtype=np.int64)))


def permute_field(encoder: Encoder, rows: EncodedRows, position: int, order_R: npt.NDArray[np.int64]) -> EncodedRows:
    """The rows with the values of one field exchanged: row r gets the value, or complete list, of row `order_R[r]`."""
    layout = rows.layout
    held = EncodedField(
        ids=rows.ids_RF[:, position],
        numbers=_column(rows.numbers_RN, layout.numerical, position),
        lists=rows.lists_R(position) if position in layout.lists else None,
        measures=_column(rows.measures_RM, layout.measured, position),
    )
    return with_field(encoder, rows, position, held.take(order_R))


def with_field(encoder: Encoder, rows: EncodedRows, position: int, values: EncodedField) -> EncodedRows:
    """The rows with other values in one field; what the evidence says of combinations of other fields stays."""
    layout, ids_RF = rows.layout, rows.ids_RF.copy()
    ids_RF[:, position] = values.ids
    for column, cross in enumerate(encoder.crosses, start=len(encoder.field_encoders)):
        if position in (cross.left, cross.right):
            ids_RF[:, column] = cross.encode(ids_RF)
    changed: dict[str, RowArray] = {IDS: ids_RF}
    if values.lists is not None:
        changed[list_name(position)] = values.lists
    if values.numbers is not None:
        changed[NUMBERS] = _exchanged(rows.numbers_RN, layout.numerical, position, values.numbers)
    if values.measures is not None and rows.measures_RM is not None:
        changed[MEASURES] = _exchanged(rows.measures_RM, layout.measured, position, values.measures)
    new = encoder.as_new(rows.with_arrays(**changed))
    if rows.evidence_RE is None or new.evidence_RE is None:
        return new
    of_others_E = np.repeat([position not in fields for fields in layout.evidence], layout.evidence_width)
    return new.with_arrays(**{EVIDENCE: np.where(of_others_E, rows.evidence_RE, new.evidence_RE)})


def _column(array: npt.NDArray[np.float32] | None, fields: tuple[int, ...], field: int) -> Vector | None:
    """The column of a field in an array of some fields; None if it has none."""
    return array[:, fields.index(field)] if array is not None and field in fields else None


def _exchanged(array: npt.NDArray[np.float32], fields: tuple[int, ...], field: int, values: Vector) -> Vector:
    """A copy of an array of some fields with other values for one of them."""
    changed: Vector = array.copy()
    changed[:, fields.index(field)] = values
    return changed


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """The value of a list without which the prediction changes most, and how much it raised the prediction.

    The value is exchanged for an unknown one. Were it removed, the others would weigh more in the mean of the list, and
    the value next to a strong one would seem strong itself.
    """

    value: str
    effect: float


REFINEMENT = "(refinement)"
"""Used in place of a field name if refinement is switched off instead of a field hidden."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Effects:
    """Predictions for complete rows, and for the same rows with fields hidden one at a time.

    A prediction is the probability of one class, or the value of a regression. The class is the positive one of two, or
    the likeliest of several for the complete row. An effect is the prediction for the complete row minus the other one,
    so it is above 0 if the field raised the prediction.

    Attributes:
        names: what is hidden: fields, or `REFINEMENT`.
        values: the values of the rows as text, one column per field.
        classes: the class of every row whose probability is given; empty for regression.
        prediction_R: predictions for the complete rows.
        without_RF: predictions without each of `names`.
        logit_R: log-odds for the complete rows; None for regression.
        logit_without_RF: log-odds without each of `names`; None for regression.
        spoken: for fields with several values per row, what the strongest of them did in every row.
    """

    names: tuple[str, ...]
    values: pl.DataFrame
    classes: tuple[object, ...]
    prediction_R: Floats
    without_RF: Floats
    logit_R: Floats | None
    logit_without_RF: Floats | None
    spoken: Mapping[str, tuple[Spoken | None, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.prediction_R)

    @property
    def effect_RF(self) -> Floats:
        """How much each of `names` raises the prediction."""
        return self.prediction_R[:, np.newaxis] - self.without_RF

    @property
    def logit_effect_RF(self) -> Floats | None:
        """Effects in log-odds, which do not flatten near 0 and 1; None for regression."""
        if self.logit_R is None or self.logit_without_RF is None:
            return None
        return self.logit_R[:, np.newaxis] - self.logit_without_RF

    @property
    def plotted_RF(self) -> Floats:
        """The effects that figures show: in log-odds, or in the unit of a regression target."""
        return self.effect_RF if self.logit_effect_RF is None else self.logit_effect_RF

    def to_frame(self) -> pl.DataFrame:
        """One line per row and name: row, hidden, value, [class], prediction, without, effect, [logit_effect].

        Regression has no columns in brackets; `value` is null for refinement. With lists, `spoke` and `spoke_effect`
        follow: the strongest value of each list and its effect.
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
        if self.spoken:
            nobody = (None,) * n_rows
            spoken = [self.spoken.get(name, nobody)[row] for row in range(n_rows) for name in self.names]
            columns["spoke"] = pl.Series([s and s.value for s in spoken], dtype=pl.String)
            columns["spoke_effect"] = pl.Series([s and s.effect for s in spoken], dtype=pl.Float64)
        return pl.DataFrame(columns)


def hide_fields(bundle: Bundle, rows: EncodedRows, *, values: pl.DataFrame | None = None) -> Effects:
    """How predictions of any model change if a field is hidden (see `hide_field`), for each field.

    `values` are the values as text, from `rows.cell_texts`; the default shows them as far as the ids do.
    """
    logits = (model_logits(bundle, hidden) for hidden in hidden_rows(bundle, rows))
    effects = _effects(bundle, rows, values, bundle.encoder.schema.field_names, logits)
    names = bundle.encoder.schema.field_names
    return replace(effects, spoken={names[f]: _spoken(bundle, rows, f) for f in rows.layout.lists})


def without_refinement(bundle: Bundle, rows: EncodedRows, *, values: pl.DataFrame | None = None) -> Effects:
    """How predictions change if refinement is switched off (T = 0, the same weights). See `hide_fields`.

    Raises:
        UserError: if the model does not refine.
    """
    return _effects(bundle, rows, values, (REFINEMENT,), iter([model_logits(unrefined(bundle), rows)]))


def hidden_rows(bundle: Bundle, rows: EncodedRows) -> Iterator[EncodedRows]:
    """The rows with the first field hidden, then with the second, and so on."""
    return (hide_field(bundle.encoder, rows, position) for position in range(len(bundle.encoder.field_encoders)))


def refines(bundle: Bundle) -> bool:
    """Whether the model refines dependencies for every row."""
    return isinstance(bundle.model, MDL) and _takes_steps(bundle.model)


def unrefined(bundle: Bundle) -> Bundle:
    """The model without steps of refinement, sharing its weights; a `UserError` if it does not refine."""
    model = dependency_model(bundle)
    if not _takes_steps(model):
        raise UserError(
            "this model does not refine dependencies, so refinement cannot be switched off. Train with "
            "model.dependencies = 'refined' and model.n_inner_steps above 0"
        )
    still = copy.copy(model)
    # A shallow copy shares the dict of submodules; replacing it leaves the original model unchanged.
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
    """Predictions for complete rows next to those from changed logits, one (R, C) per name."""
    target, complete_RC = target_of(bundle), model_logits(bundle, rows)
    classes_R = followed_classes(complete_RC, target)
    logits = (logits_RC.double() for logits_RC in chain([complete_RC], changed))
    found = [(followed(logits_RC, classes_R, target), _log_odds(logits_RC, classes_R)) for logits_RC in logits]
    predicted_RF, odds_RF = (np.stack(columns, axis=1) for columns in zip(*found, strict=True))
    regression = target.task == "regression"
    return Effects(
        names=names,
        values=value_texts(bundle.encoder, rows) if values is None else values,
        classes=() if regression else tuple(target.classes[int(c)] for c in classes_R),
        prediction_R=predicted_RF[:, 0],
        without_RF=predicted_RF[:, 1:],
        logit_R=None if regression else odds_RF[:, 0],
        logit_without_RF=None if regression else odds_RF[:, 1:],
    )


def followed_classes(complete_RC: torch.Tensor, target: Target) -> torch.Tensor:
    """The class of every row whose probability is followed: the positive one of two, or the likeliest."""
    if target.task == "multiclass":
        return complete_RC.argmax(dim=1)
    return torch.ones(len(complete_RC), dtype=torch.int64)


def _spoken(bundle: Bundle, rows: EncodedRows, position: int) -> tuple[Spoken | None, ...]:
    """The strongest value of every list, by hiding one value at a time; None for a list without a known one."""
    lists, n_ids = rows.lists_R(position), rows.layout.n_ids[position]
    pairs_P = np.unique(lists.row_V * n_ids + lists.values)
    row_P, value_P = np.divmod(pairs_P[pairs_P % n_ids >= FIRST_ID], n_ids)
    target, complete_RC = target_of(bundle), model_logits(bundle, rows)
    classes_R = followed_classes(complete_RC, target)
    without_RC = model_logits(bundle, _without_values(bundle.encoder, rows, position, row_P, value_P))
    before_R = followed(complete_RC.double(), classes_R, target)
    effect_P = before_R[row_P] - followed(without_RC.double(), classes_R[torch.from_numpy(row_P)], target)
    labels = bundle.encoder.field_encoders[position].labels()
    found: list[Spoken | None] = [None] * len(rows)
    for at in np.argsort(np.abs(effect_P), kind="stable"):  # the strongest of a row comes last
        found[row_P[at]] = Spoken(value=labels[int(value_P[at])], effect=float(effect_P[at]))
    return tuple(found)


def _without_values(
    encoder: Encoder,
    rows: EncodedRows,
    position: int,
    row_P: npt.NDArray[np.int64],
    value_P: npt.NDArray[np.int64],
) -> EncodedRows:
    """For every pair, the row with an unknown value wherever its list has this one."""
    taken = rows.take(row_P)
    lists = taken.lists_R(position)
    hidden_V = lists.values == np.repeat(value_P, lists.lengths)
    left = Ragged(np.where(hidden_V, RARE_ID, lists.values).astype(np.int32), lists.offsets)
    return with_field(encoder, taken, position, EncodedField(ids=stand_ins(left), lists=left))


def followed(logits_RC: torch.Tensor, classes_R: torch.Tensor, target: Target) -> Floats:
    """Probability of the followed class of every row, or the value of a regression."""
    values = predictions(logits_RC, target)
    if target.task != "regression":
        values = values.gather(1, classes_R.unsqueeze(1))[:, 0]
    found: Floats = values.numpy()
    return found


def _log_odds(logits_RC: torch.Tensor, classes_R: torch.Tensor) -> Floats:
    """Log-odds of one class of every row against all others together."""
    if logits_RC.shape[1] == 1:
        odds_R = logits_RC[:, 0]
    else:
        own_R = logits_RC.gather(1, classes_R.unsqueeze(1))[:, 0]
        odds_R = own_R - logits_RC.scatter(1, classes_R.unsqueeze(1), -torch.inf).logsumexp(dim=1)
    odds: Floats = odds_R.numpy()
    return odds

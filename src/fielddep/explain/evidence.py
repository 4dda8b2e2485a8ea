"""Evidence behind predictions: what training rows with the same values did, and how it moved a prediction.

A model with evidence (`encoding/evidence.py`) has counted its training rows by joint value of one to three fields. So a
prediction can name the rows that it rests on: "seen 14 times, 13 of them late". How much it rests on them is the
*effect* of a combination of fields: the prediction minus the one if those rows had done as all rows did, while all else
stays. It is in the same unit as the effects of `hiding`.

Their number stays, because models never meet most values without rows: a field whose every value has hundreds of rows
would be far outside of what the model was trained on if it had none, and noise would look strong. `Comparison` has this
too, for combinations that new rows often lack.

Values are those that were counted: a number is shown as its bin, and a value without an id of its own as rare.

Shape legend: R rows, K combinations, P different values of the lists of all rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.evidence import Cells, Evidence, joint_keys, statements, sum_by, sums_by
from fielddep.encoding.field import joined_labels
from fielddep.encoding.rows import EncodedRows, sample_rows
from fielddep.encoding.target import Target
from fielddep.errors import UserError
from fielddep.explain.curves import model_logits
from fielddep.explain.hiding import followed, followed_classes
from fielddep.explain.rows import Floats, id_texts, target_of
from fielddep.nn.direct import DirectNetwork
from fielddep.wording import amount, count, percent, shorten

N_STRONGEST = 8
"""Combinations of a row that are kept, at most."""
RANKED_ROWS = 2000
"""Rows that rank combinations, at most."""
MAX_VALUE = 40
"""Characters of a value in a sentence."""
Comparison = Literal["base", "unseen"]
"""What an effect is compared with: the same number of rows that did as all rows did, or no rows."""
_WORDLESS = ("target", "label", "class", "outcome", "y")
"""Names of targets that do not describe a row: "37 of them late", but "37 of them with label = 1"."""


@dataclass(frozen=True, kw_only=True)
class SeenValues:
    """Training rows with the same values as a row, and what they did to its prediction.

    Attributes:
        fields: names of the fields.
        values: their values in the row, as text.
        n: training rows with these values, or the sum of their weights. For a field with several values per row, those
            of each value added up.
        mean: their share of the class that the explanation is about, or their mean target.
        base: the same for all training rows.
        effect: how much these rows raised the prediction (a probability or a value), see `Comparison`.
        outcome: what the rows counted by `mean` have in common, in words; empty for regression.

    Example:
        >>> seen = {"fields": ("carrier", "hour"), "values": ("AA", "7"), "effect": -0.03}
        >>> print(SeenValues(**seen, n=214, mean=37 / 214, base=0.24, outcome="late"))
        carrier = AA, hour = 7: seen 214 times, 37 of them late (17 %, all rows 24 %)
        >>> print(SeenValues(**seen, n=1, mean=431, base=388.25))
        carrier = AA, hour = 7: seen once, mean 431 (all rows 388.2)
    """

    fields: tuple[str, ...]
    values: tuple[str, ...]
    n: float
    mean: float
    base: float
    effect: float
    outcome: str = ""

    def __str__(self) -> str:
        held = zip(self.fields, self.values, strict=True)
        where = ", ".join(f"{name} = {shorten(value, MAX_VALUE)}" for name, value in held)
        return f"{where}: seen {_times(self.n)}, {self._did()}"

    def _did(self) -> str:
        if not self.outcome:
            return f"mean {amount(self.mean)} (all rows {amount(self.base)})"
        n_such = self.n * self.mean
        such = amount(n_such) if n_such > 0 else "none"
        return f"{such} of them {self.outcome} ({percent(self.mean)}, all rows {percent(self.base)})"


def _times(n: float) -> str:
    if n == 1:
        return "once"
    return count(int(n), "time") if n == int(n) else f"{amount(n)} times"


@dataclass(frozen=True, kw_only=True, eq=False)
class RowEvidence:
    """The evidence behind the predictions of some rows.

    Attributes:
        classes: the class of every row whose probability is meant, as in `Effects`; empty for regression.
        prediction_R: predictions for the rows.
        rows: what was seen of every row, the strongest effect first; empty if nothing was.
    """

    classes: tuple[object, ...]
    prediction_R: Floats
    rows: tuple[tuple[SeenValues, ...], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> pl.DataFrame:
        """One line per row and combination: row, fields, values, [class], n, share or mean, base, effect, text.

        Regression has `mean`, and no class; all others have `share`.
        """
        lines = [(row, seen) for row, found in enumerate(self.rows) for seen in found]
        classes = [str(self.classes[row]) for row, _ in lines] if self.classes else None
        columns = {
            "row": pl.Series([row for row, _ in lines], dtype=pl.Int64),
            "fields": pl.Series([combination_name(seen.fields) for _, seen in lines], dtype=pl.String),
            "values": pl.Series([", ".join(seen.values) for _, seen in lines], dtype=pl.String),
            **({} if classes is None else {"class": pl.Series(classes, dtype=pl.String)}),
            "n": pl.Series([seen.n for _, seen in lines], dtype=pl.Float64),
            "mean" if classes is None else "share": pl.Series([seen.mean for _, seen in lines], dtype=pl.Float64),
            "base": pl.Series([seen.base for _, seen in lines], dtype=pl.Float64),
            "effect": pl.Series([seen.effect for _, seen in lines], dtype=pl.Float64),
            "text": pl.Series([str(seen) for _, seen in lines], dtype=pl.String),
        }
        return pl.DataFrame(columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class EvidenceRanking:
    """How much each combination of fields moves predictions, the strongest first.

    Attributes:
        combinations: names of the fields of each.
        effect_K: mean absolute effect over the rows.
        seen_K: share of the rows whose joint value was seen in training.
        n_rows: rows measured.
    """

    combinations: tuple[tuple[str, ...], ...]
    effect_K: Floats
    seen_K: Floats
    n_rows: int

    def to_frame(self) -> pl.DataFrame:
        """One line per combination: fields, effect, seen."""
        names = pl.Series("fields", map(combination_name, self.combinations), dtype=pl.String)
        return pl.DataFrame([names, pl.Series("effect", self.effect_K), pl.Series("seen", self.seen_K)])


def combination_name(fields: tuple[str, ...]) -> str:
    """The fields of a combination as one name."""
    return ", ".join(fields)


def uses_evidence(bundle: Bundle) -> bool:
    """Whether the predictions of a model rest on evidence; the weight that training found for it may be 0."""
    return _evidence_part(bundle) is not None


def row_evidence(
    bundle: Bundle, rows: EncodedRows, *, n_strongest: int = N_STRONGEST, compared_with: Comparison = "base"
) -> RowEvidence:
    """What training rows with the same values did, for each row and the combinations with the strongest effects.

    Counts are those of all training rows. So a training row counts itself, which says nothing about new rows.

    Raises:
        UserError: if the model has no evidence.
    """
    target, evidence = target_of(bundle), _require_evidence(bundle)
    complete_RC = model_logits(bundle, rows).double()
    classes_R = followed_classes(complete_RC, target)
    outputs_R = classes_R.numpy() if target.task == "multiclass" else np.zeros(len(rows), dtype=np.int64)
    effect_RK = np.stack(list(_effects(bundle, rows, complete_RC, compared_with)), axis=1)
    sums = [_sums(cells, rows) for cells in evidence.cells]
    texts = _counted_values(bundle, rows)
    names = bundle.encoder.schema.field_names
    found = []
    for row, output in enumerate(outputs_R):
        seen = [
            SeenValues(
                fields=tuple(names[f] for f in cells.fields),
                values=tuple(texts[names[f]][row] for f in cells.fields),
                n=float(n_R[row]),
                mean=_in_unit(s_RC[row, output] / n_R[row], target),
                base=_in_unit(evidence.base_C[output], target),
                effect=float(effect_RK[row, k]),
                outcome=_outcome(target, int(classes_R[row])),
            )
            for k, (cells, (n_R, s_RC)) in enumerate(zip(evidence.cells, sums, strict=True))
            if n_R[row] > 0
        ]
        found.append(tuple(sorted(seen, key=lambda one: -abs(one.effect))[:n_strongest]))
    return RowEvidence(
        classes=() if target.task == "regression" else tuple(target.classes[int(c)] for c in classes_R),
        prediction_R=followed(complete_RC, classes_R, target),
        rows=tuple(found),
    )


def rank_evidence(
    bundle: Bundle,
    rows: EncodedRows,
    *,
    n_rows: int = RANKED_ROWS,
    seed: int = 0,
    compared_with: Comparison = "base",
) -> EvidenceRanking:
    """How much each combination moves predictions on average, over all rows or a sample of `n_rows`.

    Raises:
        UserError: if the model has no evidence.
    """
    evidence, names = _require_evidence(bundle), bundle.encoder.schema.field_names
    chosen = sample_rows([rows], n_rows, seed=seed).rows
    complete_RC = model_logits(bundle, chosen).double()
    n_chosen = max(len(chosen), 1)
    effects = _effects(bundle, chosen, complete_RC, compared_with)
    effect_K = np.array([np.abs(effect_R).sum() / n_chosen for effect_R in effects])
    seen_K = np.array([(_sums(cells, chosen)[0] > 0).sum() / n_chosen for cells in evidence.cells])
    order = np.argsort(-effect_K, kind="stable")
    return EvidenceRanking(
        combinations=tuple(tuple(names[f] for f in evidence.cells[k].fields) for k in order),
        effect_K=effect_K[order],
        seen_K=seen_K[order],
        n_rows=len(chosen),
    )


def _evidence_part(bundle: Bundle) -> tuple[DirectNetwork, torch.Tensor] | None:
    """The network that sees the evidence, and the weight of its output; None if the model has none."""
    model = bundle.model
    if model.mix_P is None or "evidence" not in model.direct:
        return None
    network, weight = model.direct["evidence"], model.mix_P[list(model.direct).index("evidence")]
    assert isinstance(network, DirectNetwork)
    return (network.eval(), weight) if weight > 0 else None


def _require_evidence(bundle: Bundle) -> Evidence:
    evidence = bundle.encoder.evidence
    if evidence is None or not uses_evidence(bundle):
        raise UserError(
            f"expected a model with evidence, given {bundle.config.model.name!r} without. Train it with "
            "model.direct = 'auto' and data.evidence = 'auto'"
        )
    return evidence


def _effects(
    bundle: Bundle, rows: EncodedRows, complete_RC: torch.Tensor, compared_with: Comparison
) -> Iterator[Floats]:
    """The effect of one combination after the other (R), given the logits of the complete rows.

    Only one part of the model sees the evidence, so only this part is computed again.
    """
    part, evidence, said_RE = _evidence_part(bundle), bundle.encoder.evidence, rows.evidence_RE
    assert part is not None and evidence is not None and said_RE is not None
    network, weight = part
    target, output_RC = target_of(bundle), network.outputs(rows)
    classes_R = followed_classes(complete_RC, target)
    prediction_R = followed(complete_RC, classes_R, target)
    n_changed = evidence.width if compared_with == "unseen" else evidence.width - 1  # the last is the number of rows
    for k, cells in enumerate(evidence.cells):
        changed_RE, first = said_RE.copy(), k * evidence.width
        changed_RE[:, first : first + n_changed] = _unseen(cells, evidence)[:n_changed]
        other_RC = network.outputs(rows.with_arrays(evidence=changed_RE))
        without_RC = complete_RC + (weight * (other_RC - output_RC)).cpu().double()
        yield prediction_R - followed(without_RC, classes_R, target)


def _unseen(cells: Cells, evidence: Evidence) -> Floats:
    """The statements of a joint value that was never seen."""
    nothing_C = np.zeros((1, len(evidence.base_C)))
    said: Floats = statements(np.zeros(1), nothing_C, evidence.base_C, cells.prior, evidence.task)[0]
    return said


def _sums(cells: Cells, rows: EncodedRows) -> tuple[Floats, Floats]:
    """Training rows (R) and sums of targets (R, C) of the cells of rows; for lists, of all their different values."""
    field, n_ids = cells.fields[0], cells.n_ids[0]
    if field not in rows.layout.lists:
        return cells.sums(joint_keys([rows.ids_RF[:, f] for f in cells.fields], cells.n_ids))
    lists = rows.lists_R(field)
    row_P, value_P = np.divmod(np.unique(lists.row_V * n_ids + lists.values), n_ids)
    n_P, s_PC = cells.sums(value_P)
    return sum_by(row_P, n_P, len(rows)), sums_by(row_P, s_PC, len(rows))


def _counted_values(bundle: Bundle, rows: EncodedRows) -> dict[str, list[str]]:
    """What was counted of every field of every row, as text."""
    found = {}
    for f, field_encoder in enumerate(bundle.encoder.field_encoders):
        labels = id_texts(field_encoder)
        if f in rows.layout.lists:
            found[field_encoder.field.name] = joined_labels(labels, rows.lists_R(f)).to_list()
        else:
            found[field_encoder.field.name] = labels.gather(rows.ids_RF[:, f]).to_list()
    return found


def _in_unit(value: float, target: Target) -> float:
    return float(value * target.scale + target.mean) if target.task == "regression" else float(value)


def _outcome(target: Target, label: int) -> str:
    """What the rows of a class have in common, in words: `late`, or `with kind = a`."""
    if target.task == "regression":
        return ""
    yes_or_no = target.task == "binary" and [str(one).lower() for one in target.classes] in (
        ["0", "1"],
        ["false", "true"],
    )
    plain = yes_or_no and target.name.lower() not in _WORDLESS
    return target.name if plain else f"with {target.name} = {target.classes[label]}"

"""Members: what the network and the trees of a blend say about single rows, and how much each counts.

Shape legend: R rows, P members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.rows import EncodedRows
from fielddep.explain.curves import model_logits
from fielddep.explain.hiding import followed, followed_classes
from fielddep.explain.rows import Floats, target_of
from fielddep.nn.blend import Blend


@dataclass(frozen=True, kw_only=True, eq=False)
class Members:
    """Predictions of every member, for the same class as in `Effects`.

    Attributes:
        names: the members.
        weights: weights of their outputs in the sum, which is in log-odds for classes.
        prediction_RP: what each would predict alone.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    prediction_RP: Floats

    def text(self, row: int) -> str:
        """What each member says about a row, in one line."""
        numbers = zip(self.names, self.prediction_RP[row], self.weights, strict=True)
        return "; ".join(f"{name} {prediction:.4f} (weight {weight:.2f})" for name, prediction, weight in numbers)

    def to_frame(self) -> pl.DataFrame:
        """One line per row and member: row, member, weight, prediction."""
        n_rows, n_members = self.prediction_RP.shape
        return pl.DataFrame(
            {
                "row": np.repeat(np.arange(n_rows), n_members),
                "member": pl.Series(list(self.names) * n_rows, dtype=pl.String),
                "weight": list(self.weights) * n_rows,
                "prediction": self.prediction_RP.ravel(),
            }
        )


def row_members(bundle: Bundle, rows: EncodedRows) -> Members | None:
    """What each member of a blend predicts for rows; None for any other model."""
    model, target = bundle.model, target_of(bundle)
    if not isinstance(model, Blend):
        return None
    classes_R = followed_classes(model_logits(bundle, rows), target)
    outputs_PRC = model.member_outputs(rows).cpu().double()
    return Members(
        names=model.members,
        weights=tuple(model.share_P.tolist()),
        prediction_RP=np.stack([followed(outputs_RC, classes_R, target) for outputs_RC in outputs_PRC], axis=1),
    )

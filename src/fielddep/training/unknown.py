"""Training of the rare id: some values are replaced by it, so that predictions for unknown values make sense.

In a field without rare values, nothing else would train the rare id, and an unknown value would get a random vector. So
in training, a value seen c times is replaced with probability a / (a + c), a = `unknown_rate`: often if it was seen
once, hardly ever if it is frequent, because unknown values resemble rare ones. A floor trains the id in fields that
have frequent values only. Evaluation and prediction never replace anything.

An unknown value has no evidence either. So with an id, what the combinations of its field say is replaced too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import EVIDENCE, IDS, Batch, EncodedRows, Layout, ListInput, RowArray, list_name

FLOOR = 1e-3
"""Smallest probability that a value is replaced."""
MIN_REPLACED = 8
"""Values per epoch that the floor should replace in a field of a small table."""


class UnknownTraining:
    """Replaces ids of a training batch by the rare id of their field.

    Args:
        layout: columns of ids.
        counts: training rows of every local id, per column.
        rate: `unknown_rate`; zero turns replacing off.
        seed: the draws of a step depend only on seed and step.
    """

    def __init__(self, layout: Layout, counts: Sequence[np.ndarray], *, rate: float, seed: int) -> None:
        self.seed = seed
        self.active = rate > 0
        self.crosses = layout.crosses
        self.rare_F = torch.tensor(layout.offsets, dtype=torch.int64) + 1
        chances = []
        for field, count in layout.of_owners(list(enumerate(counts))):
            chance = rate / (rate + np.maximum(count, 1e-9))
            floor = max(FLOOR, MIN_REPLACED / max(float(count.sum()), 1.0))
            chance = np.clip(np.maximum(chance, min(floor, 0.05)), 0.0, 0.5)
            chance[:2] = 0.0  # missing and rare stay what they are
            chances.append(np.zeros_like(chance) if field in layout.numerical else chance)
        self.chance = torch.from_numpy(np.concatenate(chances)).float()
        self.fields_FK = torch.zeros(layout.n_columns, len(layout.evidence))
        """1 for the fields of each combination."""
        for combination, fields in enumerate(layout.evidence):
            self.fields_FK[list(fields), combination] = 1.0

    def __call__(self, batch: Batch, step: int) -> Batch:
        """The batch with some ids replaced."""
        if not self.active:
            return batch
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + 500_009 + step)
        ids_BF = batch.inputs.ids_BF
        hidden_BF = torch.rand(ids_BF.shape, generator=generator) < self.chance[ids_BF]
        n_fields = hidden_BF.shape[1] - len(self.crosses)
        for position, (left, right) in enumerate(self.crosses, start=n_fields):
            # A cross of an unknown value is unknown too.
            hidden_BF[:, position] |= hidden_BF[:, left] | hidden_BF[:, right]
        lists = tuple(self._in_lists(one, generator) for one in batch.inputs.lists)
        inputs = batch.inputs._replace(ids_BF=torch.where(hidden_BF, self.rare_F, ids_BF), lists=lists)
        if inputs.evidence_BE is not None:
            inputs = inputs._replace(evidence_BE=self._unseen(inputs.evidence_BE, hidden_BF))
        return replace(batch, inputs=inputs)

    def rows(self, rows: EncodedRows, step: int) -> EncodedRows:
        """The same for encoded rows, for a model that takes no batches."""
        if not self.active:
            return rows
        inputs = self(rows.batch(), step).inputs
        offsets_F = rows.layout.offsets_F
        changed: dict[str, RowArray] = {IDS: (inputs.ids_BF.numpy() - offsets_F).astype(np.int32)}
        for one in inputs.lists:
            values = (one.ids_V.numpy() - offsets_F[one.column]).astype(np.int32)
            changed[list_name(one.column)] = Ragged(values, rows.lists_R(one.column).offsets)
        if inputs.evidence_BE is not None:
            changed[EVIDENCE] = inputs.evidence_BE.numpy()
        return rows.with_arrays(**changed)

    def _unseen(self, evidence_BE: torch.Tensor, unseen_BF: torch.Tensor) -> torch.Tensor:
        """The evidence without what combinations of some fields say: a statement of 0, of 0 rows."""
        changed_C = torch.nonzero(unseen_BF.any(dim=1)).squeeze(1)  # few rows of a batch
        if not len(changed_C):
            return evidence_BE
        said_BE, seen_CK = evidence_BE.clone(), (unseen_BF[changed_C].float() @ self.fields_FK) == 0
        said_CKW = said_BE[changed_C].view(*seen_CK.shape, -1)
        said_BE[changed_C] = (said_CKW * seen_CK.unsqueeze(2)).view(len(changed_C), -1)
        return said_BE

    def _in_lists(self, one: ListInput, generator: torch.Generator) -> ListInput:
        """The same for every value of the lists of a field."""
        hidden_V = torch.rand(len(one.ids_V), generator=generator) < self.chance[one.ids_V]
        return one._replace(ids_V=torch.where(hidden_V, self.rare_F[one.column], one.ids_V))

"""Choose combinations: which sets of two to four fields say something that their parts do not.

On a sample of training rows, pairs are ranked by what their statements explain of the target beyond the statements of
all single fields, triples by what they explain beyond single fields and the best pairs, and sets of four beyond the
best triples, too. Single fields include those whose numbers the model sees: a pair of such a field and a nearly
constant one would otherwise look best of all.

Shape legend: S sampled rows, C outputs, E statements, J combinations of a block, B basis of what is already said.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from fielddep.encoding.counting import Combination, CountedRows, count_all
from fielddep.encoding.evidence import MAX_KEYS, Floats
from fielddep.encoding.ragged import Ragged

MAX_SEARCH_ROWS = 60_000
MAX_CELL_VISITS = 3e7
"""Rows times candidates of the ranking; with many candidates, fewer rows rank them."""
MIN_SEARCH_ROWS = 10_000
MAX_FIELDS = 64
"""With more fields, evidence is used only if asked for: of hundreds of fields most say nothing, and what their counts
say by chance adds up."""
MIN_ROWS = 200
"""With fewer training rows, evidence is used only if asked for: cells of a few rows say more by chance than by rule."""
MANY_PAIRS = 60
"""Of more pairs, only those stay that explain more than noise would."""
MAX_KNOWN = 40
"""Best combinations of a size beyond which larger ones must say something."""
N_EXTENDED = 20
"""Best combinations that are extended by a field, if there are too many fields to try all triples."""
FEW_FIELDS = 10
MAX_OF_SIZE = {3: 40, 4: 20}
"""Most combinations of three and of four fields."""
MAX_STATEMENTS = 600
"""Statements of all combinations of several fields; one has a statement per class."""
MAX_CLASSES = 5
"""Classes whose statements rank combinations: the most frequent."""
MAX_BLOCK = 1 << 21
"""Numbers of the statements that are judged in one matrix product."""

Gain = tuple[Combination, float]
"""A combination and what it explains beyond its parts."""


def choose_combinations(rows: CountedRows, max_combinations: int, *, seed: int = 0) -> list[Combination]:
    """Single fields, then the combinations that say most beyond their parts, in order of falling gain.

    A field whose number the model sees is left out alone, and a combination needs another field: what bins say of a
    number, the model can say better.
    """
    single: list[Combination] = [(f,) for f in range(len(rows.columns)) if f not in rows.measured]
    if not single or len(rows.columns) > MAX_FIELDS or len(rows.rows_T) < MIN_ROWS:
        return []
    plain = [f for f, column in enumerate(rows.columns) if not isinstance(column, Ragged) and rows.n_ids[f] > 1]
    at_most = min(max_combinations, MAX_STATEMENTS // rows.n_outputs)
    if len(plain) < 2 or at_most < 1:
        return single
    n_pairs = len(plain) * (len(plain) - 1) // 2
    n_sample = int(np.clip(MAX_CELL_VISITS / n_pairs, MIN_SEARCH_ROWS, MAX_SEARCH_ROWS))
    train = rows.rows_T
    if len(train) > n_sample:
        train = np.sort(np.random.default_rng(seed).choice(train, n_sample, replace=False))
    # Cells of a sample have fewer rows.
    sample = replace(rows.take(train), min_rows=rows.min_rows * len(train) / len(rows.rows_T))
    ranking = _Ranking(sample, [(f,) for f in range(len(rows.columns))])
    pairs = _worthwhile(ranking.ranked(_mixed(itertools.combinations(plain, 2), rows.measured)), MANY_PAIRS)
    larger: list[Gain] = []
    latest = pairs
    for size, most in MAX_OF_SIZE.items():
        ranking = ranking.beyond([fields for fields, _ in latest[:MAX_KNOWN]])
        every = size == 3 and len(plain) <= FEW_FIELDS
        candidates = itertools.combinations(plain, 3) if every else _extended(latest[:N_EXTENDED], plain)
        ranked = ranking.ranked(_mixed(candidates, rows.measured))
        latest = _worthwhile(ranked, 0)[: max(0, min(most, at_most // 2 - len(larger)))]
        larger += latest
    chosen = _best_first(pairs[: at_most - len(larger)] + larger)
    return single + [fields for fields, _ in chosen]


def _extended(gains: Sequence[Gain], plain: Sequence[int]) -> list[Combination]:
    """These combinations with one more field each."""
    return sorted({tuple(sorted({*fields, f})) for fields, _ in gains for f in plain if f not in fields})


def _mixed(combinations: Iterable[Combination], measured: Collection[int]) -> list[Combination]:
    """Those with a field whose number the model does not see."""
    return [fields for fields in combinations if any(f not in measured for f in fields)]


def _best_first(gains: Iterable[Gain]) -> list[Gain]:
    return sorted(gains, key=lambda entry: -entry[1])


def _worthwhile(gains: Sequence[Gain], n_few: int) -> list[Gain]:
    """All if there are few; else those that gain more than the best of so many combinations that say nothing."""
    bound = math.log(len(gains)) if len(gains) > n_few else -math.inf
    return [(fields, gain) for fields, gain in gains if gain > bound]


class _Ranking:
    """What combinations explain beyond those that are known, on a sample of training rows."""

    def __init__(self, rows: CountedRows, known: Sequence[Combination]) -> None:
        self.rows = rows
        self.known = known
        self.used = self._used_outputs()
        self._n_said = len(self.used) + 1
        outputs_SC = self._outputs()
        said_ES = np.concatenate([self._said(block).copy() for block in self._blocks(known)])
        basis_BS = _basis(np.concatenate([np.ones((1, len(rows))), said_ES]))
        self._rest_SC = outputs_SC - basis_BS.T @ (basis_BS @ outputs_SC)
        self._judges = np.concatenate([self._rest_SC.T, basis_BS])

    def beyond(self, combinations: Sequence[Combination]) -> _Ranking:
        """A ranking by what is explained beyond these combinations, too."""
        return _Ranking(self.rows, [*self.known, *combinations])

    def ranked(self, combinations: Iterable[Combination]) -> list[Gain]:
        """Combinations with their gains, best first; those with too many joint values are left out."""
        known = [fields for fields in combinations if math.prod(self.rows.n_ids[f] for f in fields) < MAX_KEYS]
        gains = [gain for block in self._blocks(known) for gain in self._gains_of(block)]
        return _best_first(zip(known, gains, strict=True))

    def _gains_of(self, combinations: Sequence[Combination]) -> list[float]:
        """Gains of what statements say beyond the basis; what is left of the outputs says nothing about the basis."""
        said_ES = self._said(combinations)
        products = said_ES @ self._judges.T
        both_EC, in_basis_EB = np.split(products, [self._rest_SC.shape[1]], axis=1)
        size_E = np.einsum("es,es->e", said_ES, said_ES) - np.square(in_basis_EB).sum(axis=1)
        return self._gains(both_EC, size_E, self._rest_SC)

    def _gains(self, both_EC: Floats, size_E: Floats, outputs_SC: Floats) -> list[float]:
        """How much of the outputs each combination explains; noise explains 1 on average.

        Args:
            both_EC: products of statements and outputs. Each statement explains on its own.
            size_E: squared lengths of the statements.
            outputs_SC: the outputs.
        """
        kept_E = size_E > 1e-9 * len(outputs_SC)
        variance_C = np.maximum(np.square(outputs_SC).mean(axis=0), 1e-12)
        share_EC = np.square(both_EC) / np.where(kept_E, size_E, 1.0)[:, None] / variance_C
        gain_JE = np.where(kept_E, share_EC.mean(axis=1), 0.0).reshape(-1, self._n_said)
        n_kept_J = kept_E.reshape(-1, self._n_said).sum(axis=1)
        gains: list[float] = (gain_JE.sum(axis=1) / np.maximum(n_kept_J, 1)).tolist()
        return gains

    def _blocks(self, combinations: Sequence[Combination]) -> Iterator[Sequence[Combination]]:
        size = len(self._buffer)
        return (combinations[start : start + size] for start in range(0, len(combinations), size))

    @cached_property
    def _buffer(self) -> Floats:
        """Statements of a block; memory that is used again costs less."""
        n_rows, n_said = len(self.rows), self.rows.n_outputs + 1
        return np.empty((max(1, MAX_BLOCK // max(1, n_rows * n_said)), n_said, n_rows))

    def _said(self, combinations: Sequence[Combination]) -> Floats:
        """What combinations say about the outputs that count, statement after statement (E, S), until the next call."""
        said = self._buffer[: len(combinations)]
        count_all(self.rows, combinations, said.transpose(0, 2, 1))
        if len(self.used) < self.rows.n_outputs:
            said = said[:, [*self.used, self.rows.n_outputs]]
        return said.reshape(-1, len(self.rows))

    def _used_outputs(self) -> list[int]:
        if self.rows.task != "multiclass":
            return [0]
        return list(map(int, np.argsort(-self.rows.base_C, kind="stable")[:MAX_CLASSES]))

    def _outputs(self) -> Floats:
        rows = self.rows
        if rows.task != "multiclass":
            outputs_SC = rows.target_R.astype(np.float64)[:, None]
        else:
            outputs_SC = np.equal(rows.target_R[:, None], np.array(self.used)[None]).astype(np.float64)
        centred: Floats = outputs_SC - outputs_SC.mean(axis=0)
        return centred


def _basis(inputs: Floats) -> Floats:
    """An orthonormal basis of the rows of a wide matrix, without directions of a millionth of the largest size.

    Squared sizes lose half of the digits. So the rows that they give are made orthonormal once more.
    """
    squares, turned = np.linalg.eigh(inputs @ inputs.T)
    kept = squares > 1e-12 * squares[-1]
    nearly = (turned[:, kept] / np.sqrt(squares[kept])).T @ inputs
    basis: Floats = np.linalg.inv(np.linalg.cholesky(nearly @ nearly.T)) @ nearly
    return basis

"""Translation: rows of a store in the ids of another encoder, for a model that was not trained on that store.

A store keeps ids, so a value can be told only where its id still says which one it was. Values of a categorical field
can, but for those that were rare when the store was made: they are unknown to the other encoder, whatever they were.
A missing cell of a field that had none in the store's training rows was stored as rare too, so it counts as unknown.
Standardised numbers can, up to rounding and to the clipping of extreme ones. Bins cannot, unless both encoders have
the same; then the translation is refused, as a guess would give wrong metrics without a word.

Where `handle_unknown` is "error", the other encoder knows its rare values too. A value that can be told and is one of
them is known; what cannot be looked up is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder, UnknownReport, check_columns
from fielddep.data.fieldcoder import FieldCoder, field_texts
from fielddep.data.numeric import QuantileBins, ScaledNumbers
from fielddep.data.store.loader import StorePart
from fielddep.data.store.store import Store
from fielddep.data.target import Target, class_texts
from fielddep.data.vocabulary import FIRST_ID, MISSING_ID, RARE_ID, Vocabulary
from fielddep.errors import SchemaError, UnknownValueError

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


def stored_rows(
    store: Store, encoder: TableEncoder, *, part: str | None = None, with_target: bool = False
) -> Iterator[tuple[EncodedTable, UnknownReport]]:
    """Rows of a store block by block, in the source's order and in the ids of an encoder.

    Args:
        store: the rows.
        encoder: what the ids must mean; where it is that of the store, nothing is translated and nothing refused: a row
            with the rare id counts as unknown, be it a value that was rare in training or one never seen there.
        part: train, validation or test; None gives all rows.
        with_target: also give target and weights.

    Raises:
        SchemaError: when a field, the target or the weight is absent, or its values cannot be told from the ids.
    """
    translation = None if same_ids(store.encoder, encoder) else Translation(store.encoder, encoder, with_target)
    for block in StorePart(store=store, part=part).blocks():
        if translation is None:
            kept = block if with_target else replace(block, target_R=None, weight_R=None)
            yield kept, _report(encoder, block.ids_RF.numpy(), block.ids_RF.numpy())
        else:
            yield translation(block)


def same_ids(first: TableEncoder, second: TableEncoder) -> bool:
    """Whether two encoders give the same ids for the same rows."""
    return (
        first.to_json() == second.to_json()
        and all(_same_coding(a, b) for a, b in zip(first.coders, second.coders, strict=True))
        and all(np.array_equal(a.codes, b.codes) for a, b in zip(first.crosses, second.crosses, strict=True))
    )


def _same_coding(first: FieldCoder, second: FieldCoder) -> bool:
    a, b = first.coding, second.coding
    if first.field.numeric != second.field.numeric:
        return False
    if isinstance(a, Vocabulary) and isinstance(b, Vocabulary):
        return a.values.equals(b.values) and a.knows_missing == b.knows_missing
    if isinstance(a, QuantileBins) and isinstance(b, QuantileBins):
        # Counts say whether training held missing cells, and numbers at all.
        return np.array_equal(a.edges, b.edges) and np.array_equal(a.counts > 0, b.counts > 0)
    return isinstance(a, ScaledNumbers) and a == b


class Translation:
    """Turns rows of one encoder into rows of another. Learnt once from the vocabularies, then one look-up a row.

    Args:
        old: encoder of the rows.
        new: encoder that is wanted.
        with_target: also translate target and weights.
    """

    def __init__(self, old: TableEncoder, new: TableEncoder, with_target: bool) -> None:
        check_columns(old.schema.field_names, new.schema.field_names)
        self.old, self.new, self.with_target = old, new, with_target
        if with_target:
            _check_target(old, new)
        self.fields = [_FieldTranslation.fit(old, coder) for coder in new.coders]

    def __call__(self, rows: EncodedTable) -> tuple[EncodedTable, UnknownReport]:
        """Translated rows, and how many of their values the new encoder does not know."""
        old_RF, numbers_RN = rows.ids_RF.numpy(), rows.numbers_RN.numpy()
        new_RF = np.empty((len(rows), len(self.fields) + len(self.new.crosses)), dtype=np.int32)
        numbers = []
        for f, field in enumerate(self.fields):
            new_RF[:, f], scaled = field.translate(old_RF, numbers_RN)
            if scaled is not None:
                numbers.append(scaled)
        for position, cross in enumerate(self.new.crosses, start=len(self.fields)):
            new_RF[:, position] = cross.encode(new_RF)
        kept = [field.kept_rare for field in self.fields]
        report = _report(self.new, old_RF[:, [field.position for field in self.fields]], new_RF, kept)
        self._refuse_unknown(report)
        translated = EncodedTable(
            layout=self.new.layout,
            ids_RF=torch.from_numpy(new_RF),
            numbers_RN=torch.from_numpy(np.stack(numbers, axis=1)) if numbers else torch.empty(len(rows), 0),
            target_R=self._target(rows) if self.with_target else None,
            weight_R=rows.weight_R if self.with_target and self.new.schema.weight is not None else None,
        )
        return translated, report

    def _target(self, rows: EncodedTable) -> torch.Tensor:
        """Targets back to labels or numbers, and from there as the new encoder wants them."""
        old, new = self.old.schema.target, self.new.schema.target
        assert old is not None and new is not None and rows.target_R is not None
        if old.task == "regression":
            column = pl.Series(rows.target_R.double().numpy() * old.scale + old.mean)
        else:
            column = pl.Series(class_texts(old.classes)).gather(rows.target_R.long().numpy())
        return new.encode(column.alias(new.name), self.new.missing_values)

    def _refuse_unknown(self, report: UnknownReport) -> None:
        unknown = [name for name, count in report.unknown.items() if count]
        if self.new.handle_unknown == "error" and unknown:
            raise UnknownValueError(
                f"field {unknown[0]!r} must hold values seen in training; the store holds {report.unknown[unknown[0]]} "
                "in one block that are unknown, or were rare when it was made; give the table that the store was made "
                "from, or train with data.handle_unknown = 'rare'"
            )


@dataclass(frozen=True, kw_only=True)
class _FieldTranslation:
    """One field: where it stands in the old rows, and the new id (and number) of every old id."""

    position: int
    coder: FieldCoder
    old: FieldCoder
    number_position: int | None
    ids: Ids | None
    """None keeps the old ids, or takes them from the number."""
    numbers: Floats | None
    kept_rare: Flags | None
    """Which old ids are values that the new field knows to be rare; None where it knows none."""

    @classmethod
    def fit(cls, old: TableEncoder, coder: FieldCoder) -> _FieldTranslation:
        position = old.schema.field_names.index(coder.field.name)
        numerical = old.layout.numerical
        source = old.coders[position]
        ids, numbers = (None, None) if _same_coding(source, coder) else _look_up(source, coder)
        return cls(
            position=position,
            coder=coder,
            old=source,
            number_position=numerical.index(position) if position in numerical else None,
            ids=ids,
            numbers=numbers,
            kept_rare=_kept_rare(source, coder),
        )

    def translate(self, old_RF: Ids, numbers_RN: Floats) -> tuple[Ids, Floats | None]:
        """New ids of the rows, and numbers where the new field has them."""
        old_R = old_RF[:, self.position]
        scaled = None if self.number_position is None else numbers_RN[:, self.number_position]
        if self.ids is not None:
            return self.ids[old_R], None if self.numbers is None else self.numbers[old_R]
        if scaled is None or _same_coding(self.old, self.coder):
            return old_R, scaled
        found = self.coder.encode(self.old.decode(old_R, scaled))
        return found.ids, found.numbers


def _kept_rare(old: FieldCoder, new: FieldCoder) -> Flags | None:
    if not isinstance(old.coding, Vocabulary) or not isinstance(new.coding, Vocabulary) or new.coding.rare is None:
        return None
    values = old.coding.values.alias(new.field.name)
    texts = values if old.field.numeric == "log2" else field_texts(new.field, values, new.missing_values)
    kept = texts.is_in(new.coding.rare.implode()).fill_null(False).to_numpy()
    return np.concatenate([np.zeros(FIRST_ID, dtype=np.bool_), kept])


def _look_up(old: FieldCoder, new: FieldCoder) -> tuple[Ids | None, Floats | None]:
    """New id and number of every old id; None for a number, which is encoded row by row.

    Raises:
        SchemaError: when an old id does not tell the value well enough.
    """
    name = new.field.name
    if isinstance(old.coding, ScaledNumbers) and isinstance(new.coding, ScaledNumbers):
        return None, None
    bins_of_counts = old.field.numeric == "log2"
    if not isinstance(old.coding, Vocabulary) or (bins_of_counts and new.field.numeric != "log2"):
        raise SchemaError(
            f"field {name!r} of the store holds {_what(old)}, from which the ids of this model ({_what(new)}) cannot "
            "be told; give the table that the store was made from, or train a model on the store"
        )
    texts = pl.concat([pl.Series(name, [None, None], dtype=pl.String), old.coding.values.alias(name)])
    if bins_of_counts:
        assert isinstance(new.coding, Vocabulary)
        ids, numbers = new.coding.encode(texts)[0], None  # the texts are bins already
    else:
        found = new.encode(texts)
        ids, numbers = found.ids.copy(), found.numbers
    if isinstance(new.coding, Vocabulary):
        ids[RARE_ID] = RARE_ID
    return ids, numbers


def _what(coder: FieldCoder) -> str:
    words = {"scale": "standardised numbers", "quantile": "bins of numbers", "log2": "bins of counts"}
    return words.get(coder.field.numeric or "", "single values")


def _check_target(old: TableEncoder, new: TableEncoder) -> None:
    have, want = old.schema.target, new.schema.target
    assert have is not None and want is not None
    if (have.name, have.task) != (want.name, want.task):
        raise SchemaError(
            f"the model predicts {_target_text(want)}, the store holds {_target_text(have)}; encode the table with "
            f"--target {want.name} --task {want.task}"
        )
    if new.schema.weight is not None and old.schema.weight != new.schema.weight:
        raise SchemaError(
            f"the model weighs rows by {new.schema.weight!r}, which the store does not hold; encode the table with "
            f"data.weight = {new.schema.weight!r}"
        )


def _target_text(target: Target) -> str:
    return f"{target.name!r} ({target.task})"


def _report(
    encoder: TableEncoder, old_RF: Ids, new_RF: Ids, kept_rare: Sequence[Flags | None] | None = None
) -> UnknownReport:
    """Unknown and missing values.

    Args:
        encoder: what the new ids mean.
        old_RF: ids that tell what is missing.
        new_RF: ids of the encoder.
        kept_rare: which old ids are values known to be rare, per field.
    """
    unknown, missing = {}, {}
    for f, coder in enumerate(encoder.coders):
        absent_R = old_RF[:, f] == MISSING_ID
        rare_R = (new_RF[:, f] == RARE_ID) & ~absent_R
        kept = None if kept_rare is None else kept_rare[f]
        if kept is not None:
            rare_R &= ~kept[old_RF[:, f]]
        if isinstance(coder.coding, QuantileBins):  # a number is never unknown, so this is a missing cell
            absent_R, rare_R = absent_R | rare_R, np.zeros_like(rare_R)
        elif isinstance(coder.coding, ScaledNumbers):
            rare_R = np.zeros_like(rare_R)
        unknown[coder.field.name], missing[coder.field.name] = int(rare_R.sum()), int(absent_R.sum())
    return UnknownReport(n_rows=len(new_RF), unknown=unknown, missing=missing)

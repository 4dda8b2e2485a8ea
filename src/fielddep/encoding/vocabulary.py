"""Vocabulary: the values of one field and their ids.

Local id 0 is *missing*, 1 is *rare*, and the kept values follow by falling count, ties by text. So the same counts
always give the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.one_row import TextIndex
from fielddep.encoding.values import boolean_synonyms

MISSING_ID, RARE_ID, FIRST_ID = 0, 1, 2
MISSING, RARE = "<missing>", "<rare>"
"""Labels of the two reserved ids."""

FRAME_SCHEMA = {"value": pl.String, "id": pl.Int32, "count": pl.Int64}


@dataclass(frozen=True, kw_only=True, eq=False)
class Vocabulary:
    """Values and counts of one field.

    Attributes:
        values: kept values; position p has local id p + 2.
        counts: counted rows of each local id, int64; the rare id counts all rare values together.
        rare: rare values, kept only on demand. Without them, a value is unknown if it was never seen *or* is rare.
    """

    values: pl.Series
    counts: npt.NDArray[np.int64]
    rare: pl.Series | None = None

    @classmethod
    def from_counts(
        cls,
        values: pl.Series,
        counts: pl.Series,
        n_missing: int,
        min_count: int,
        *,
        keep_rare: bool = False,
        max_values: int | None = None,
    ) -> Vocabulary:
        """Build from values and their counts; counts of a value that is given twice (from two chunks) are added.

        Only the `max_values` most frequent values are kept.
        """
        table = pl.DataFrame({"value": values.cast(pl.String), "count": counts.cast(pl.Int64)})
        table = table.group_by("value").agg(pl.col("count").sum())
        table = table.sort("count", "value", descending=[True, False])
        n_kept = min(int((table["count"] >= min_count).sum()), len(table) if max_values is None else max_values)
        kept, rare = table.head(n_kept), table.slice(n_kept)
        reserved = np.array([n_missing, int(rare["count"].sum())], dtype=np.int64)
        return cls(
            values=kept["value"],
            counts=np.concatenate([reserved, kept["count"].to_numpy()]),
            rare=rare["value"] if keep_rare else None,
        )

    @property
    def has_missing(self) -> bool:
        """Whether training rows had missing values, so the missing id was trained."""
        return bool(self.counts[MISSING_ID] > 0)

    def encode(self, texts: pl.Series) -> tuple[npt.NDArray[np.int32], int]:
        """Local ids of canonical texts, in their order, and the number of unknown values.

        An unknown value takes the rare id, and so does a missing one if training rows had none.
        """
        ids = self._look_up(texts)
        missing = texts.is_null().to_numpy()
        n_unknown = ids.null_count() - int(missing.sum())
        local = ids.fill_null(RARE_ID).to_numpy().astype(np.int32)
        if self.has_missing:
            local[missing] = MISSING_ID
        return local, n_unknown

    def encode_few(self, texts: Sequence[str | None]) -> tuple[npt.NDArray[np.int32], int]:
        """`encode` for a few texts, each looked up on its own; the first call builds an index."""
        others = self._synonyms
        found = [None if text is None else self._index.find(others.get(text, text)) for text in texts]
        missing_id = MISSING_ID if self.has_missing else RARE_ID
        ids = [
            missing_id if text is None else RARE_ID if at is None or at >= len(self.values) else at + FIRST_ID
            for text, at in zip(texts, found, strict=True)
        ]
        return np.array(ids, dtype=np.int32), found.count(None) - texts.count(None)

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(self._known)

    @property
    def _known(self) -> pl.Series:
        """All known values, the rare ones last."""
        return self.values if self.rare is None else pl.concat([self.values, self.rare])

    @cached_property
    def _synonyms(self) -> dict[str, str]:
        return boolean_synonyms(self._known)

    @cached_property
    def _synonym_ids(self) -> pl.DataFrame:
        """Value and id of every synonym."""
        places = [(other, self._known.index_of(text)) for other, text in self._synonyms.items()]
        ids = {other: at + FIRST_ID if at is not None and at < len(self.values) else RARE_ID for other, at in places}
        return pl.DataFrame({"value": list(ids), "id": list(ids.values())}, schema={"value": pl.String, "id": pl.Int32})

    def unknown_rows(self, texts: pl.Series) -> npt.NDArray[np.int64]:
        """Positions of the unknown values."""
        mask = self._look_up(texts).is_null() & texts.is_not_null()
        return mask.arg_true().to_numpy().astype(np.int64)

    def labels(self) -> pl.Series:
        """One text per local id, for tables and plots."""
        return pl.concat([pl.Series("value", [MISSING, RARE]), self.values.alias("value")])

    def to_frame(self) -> pl.DataFrame:
        """Columns value, id and count; the reserved ids have no value. Rare values, if kept, have id 1."""
        values = [pl.Series([None, None], dtype=pl.String), self.values]
        ids, counts = np.arange(len(self.counts)), self.counts
        if self.rare is not None:
            # Their count is 0, because the row of the rare id itself counts them.
            values.append(self.rare)
            ids = np.concatenate([ids, np.full(len(self.rare), RARE_ID)])
            counts = np.concatenate([counts, np.zeros(len(self.rare), dtype=np.int64)])
        return pl.DataFrame({"value": pl.concat(values), "id": ids, "count": counts}, schema=FRAME_SCHEMA)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, *, keep_rare: bool = False) -> Vocabulary:
        """Read what `to_frame` wrote, with the same `keep_rare` as `from_counts`."""
        is_rare_value = (pl.col("id") == RARE_ID) & pl.col("value").is_not_null()
        own = frame.filter(~is_rare_value).sort("id")
        return cls(
            values=own["value"].slice(FIRST_ID),
            counts=own["count"].to_numpy().astype(np.int64),
            rare=frame.filter(is_rare_value)["value"] if keep_rare else None,
        )

    def _look_up(self, texts: pl.Series) -> pl.Series:
        """Id of each text; null for missing and unknown. A join, because it is fastest and keeps the order."""
        values = self._known
        ids = np.full(len(values), RARE_ID, dtype=np.int32)
        ids[: len(self.values)] = np.arange(FIRST_ID, len(self.counts))
        known = pl.concat([pl.DataFrame({"value": values, "id": ids}), self._synonym_ids])
        asked = pl.DataFrame({"value": texts})
        return asked.join(known, on="value", how="left", maintain_order="left")["id"]

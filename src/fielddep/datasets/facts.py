"""Facts: what is known of a data set before its files are at hand, and what can be verified once they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fielddep.data.encoder import TableEncoder


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a data set.

    Attributes:
        name: its name on the command line.
        title: what it is about.
        task: binary or regression.
        target: the column to predict.
        fields: the columns a model sees.
        rows: rows, sampled negatives among them.
        parts: rows for training, validation and test.
        positives: rows of class 1; of ratings, those of 4 and more, as the paper counts them.
        categories: ids in use, missing and rare ones among them, when the values of all rows are counted
            (`counts_from="all"`).
        page: where to get the files.
        terms: under which they may be used.
        note: what else one should know.
    """

    name: str
    title: str
    task: Literal["binary", "regression"]
    target: str
    fields: tuple[str, ...]
    rows: int
    parts: tuple[int, int, int]
    positives: int
    categories: int
    page: str
    terms: str
    note: str = ""


def n_categories(encoder: TableEncoder) -> int:
    """Ids of an encoder that some counted row has."""
    return sum(int((coder.counts > 0).sum()) for coder in encoder.coders)

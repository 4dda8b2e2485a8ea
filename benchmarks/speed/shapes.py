"""The shapes of the speed benchmark: how many fields and ids five well-known tables have, and rows like theirs.

The tables themselves are not needed, because the cost of a training step depends only on shapes and ids. The fields of
Frappe and ML-Rating have their real sizes, those of the others the real order of magnitude. All sum exactly to the
published number of categories.

Ids are skewed as in real tables: within a field, the id of rank r is drawn with a probability proportional to r^-ZIPF.
The most frequent id comes first, as in a vocabulary. Everything follows from one seed.

Shape legend: R rows, F fields.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fielddep.encoding.rows import Batch, EncodedRows, Layout

ZIPF = 1.05
SEED = 0
POSITIVE_SHARE = 0.2
N_INNER_STEPS = 4
BATCH_ROWS = 2048


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One shape of table and model.

    Attributes:
        name: name in the result tables.
        fields: number of ids of every field, by name.
        d_embed: size of an embedding (k).
        n_inner_steps: steps of refinement (T).
        batch_rows: rows per training step.
    """

    name: str
    fields: dict[str, int]
    d_embed: int
    n_inner_steps: int = N_INNER_STEPS
    batch_rows: int = BATCH_ROWS

    @property
    def layout(self) -> Layout:
        """What a model knows about the fields."""
        return Layout(names=tuple(self.fields), n_ids=tuple(self.fields.values()))

    @property
    def n_ids(self) -> int:
        """Number of categories."""
        return sum(self.fields.values())

    def table(self, n_rows: int, seed: int = SEED) -> EncodedRows:
        """Rows with skewed ids and a target that is 1 in a fifth of them."""
        rng = np.random.default_rng(seed)
        ids_RF = np.stack([zipf_ids(n, n_rows, rng) for n in self.fields.values()], axis=1)
        target_R = (rng.random(n_rows) < POSITIVE_SHARE).astype(np.float32)
        return EncodedRows(
            layout=self.layout,
            arrays={"ids": ids_RF, "target": target_R},
        )

    def batches(self, n_batches: int, *, batch_rows: int | None = None, seed: int = SEED) -> list[Batch]:
        """Batches of fresh rows."""
        size = batch_rows or self.batch_rows
        table = self.table(n_batches * size, seed)
        return [table.batch(slice(i * size, (i + 1) * size)) for i in range(n_batches)]

    def counts(self, n_rows: int) -> list[npt.NDArray[np.float64]]:
        """How often every id is expected in `n_rows` rows, field by field."""
        return [zipf_shares(n) * n_rows for n in self.fields.values()]


def zipf_shares(n_ids: int) -> npt.NDArray[np.float64]:
    """Probability of every id of a field, most frequent first."""
    weights: npt.NDArray[np.float64] = np.arange(1, n_ids + 1, dtype=np.float64) ** -ZIPF
    weights /= weights.sum()
    return weights


def zipf_ids(n_ids: int, n_rows: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Ids drawn from `zipf_shares`."""
    edges = np.cumsum(zipf_shares(n_ids))
    drawn = np.searchsorted(edges, rng.random(n_rows), side="right")
    return np.minimum(drawn, n_ids - 1).astype(np.int32)


def with_total(fields: dict[str, int], total: int, *, rest: str) -> dict[str, int]:
    """Field sizes with one more field, named `rest`, that brings their sum to `total`."""
    return {**fields, rest: total - sum(fields.values())}


def uniform_shape(*, n_fields: int, n_ids: int, d_embed: int, name: str = "uniform") -> Shape:
    """A shape whose fields share the ids as evenly as whole numbers allow."""
    sizes = [n_ids * (f + 1) // n_fields - n_ids * f // n_fields for f in range(n_fields)]
    return Shape(name=name, fields={f"f{i:02d}": size for i, size in enumerate(sizes)}, d_embed=d_embed)


_FRAPPE = {
    "user": 957,
    "item": 4082,
    "daytime": 7,
    "weekday": 7,
    "isweekend": 3,
    "homework": 4,
    "cost": 2,
    "weather": 9,
    "country": 80,
    "city": 231,
}
_ML_RATING = {"user": 6040, "gender": 2, "age": 7, "occupation": 21, "zip": 3439, "movie": 3952}
_AVAZU = {
    "hour": 24,
    "C1": 7,
    "banner_pos": 7,
    "site_id": 3_480,
    "site_domain": 4_370,
    "site_category": 25,
    "app_id": 4_870,
    "app_domain": 310,
    "app_category": 31,
    "device_id": 342_000,
    "device_model": 7_260,
    "device_type": 5,
    "device_conn_type": 4,
    "C14": 2_610,
    "C15": 8,
    "C16": 9,
    "C17": 436,
    "C18": 4,
    "C19": 68,
    "C20": 172,
    "C21": 60,
}
_CRITEO_NUMBERS = (49, 101, 126, 45, 223, 118, 84, 76, 103, 9, 31, 40, 79)
_CRITEO_CATEGORIES = (
    *(1_440, 553, 80_000, 40_000, 304, 20, 11_800, 631, 3, 41_000, 5_230, 74_000, 3_170),
    *(27, 10_900, 52_000, 11, 4_750, 2_050, 4, 56_947, 17, 16, 5_800, 87, 4_050),
)
_CRITEO = {
    **{f"I{i}": n for i, n in enumerate(_CRITEO_NUMBERS, 1)},
    **{f"C{i}": n for i, n in enumerate(_CRITEO_CATEGORIES, 1)},
}
_KDD2012 = {
    "url": 25_000,
    "ad": 260_000,
    "advertiser": 14_000,
    "depth": 4,
    "position": 4,
    "query": 390_000,
    "keyword": 180_000,
    "title": 360_000,
    "description": 320_000,
    "gender": 4,
}

SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(name="frappe", fields=_FRAPPE, d_embed=40),
        Shape(name="ml-rating", fields=_ML_RATING, d_embed=20),
        Shape(name="avazu", fields=with_total(_AVAZU, 2_018_012, rest="device_ip"), d_embed=40),
        Shape(name="criteo", fields=_CRITEO, d_embed=20),
        Shape(name="kdd2012", fields=with_total(_KDD2012, 2_047_519, rest="user"), d_embed=120),
    )
}

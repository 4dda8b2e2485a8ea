import numpy as np
import polars as pl
import pytest

from fielddep.encoding.kinds import KindChoice, infer_kind, is_id_name
from fielddep.encoding.measures import add_halves
from fielddep.encoding.values import distinct_values


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("colour", ["red", "blue", "red"], "categorical"),
        ("flag", [True, False, True], "categorical"),
        ("price", [1.5, 2.0, 2.0], "numerical"),
        ("price", ["1.5", "2", ""], "numerical"),
        ("hour", list(range(24)) * 50, "categorical"),
        ("hour", [float(h) for h in range(24)] * 50, "both"),
        ("hour", [str(h) for h in range(24)] * 50, "categorical"),
        ("user_id", list(range(1000)), "categorical"),
        ("amount", list(range(0, 100_000, 100)), "numerical"),
        ("amount", [str(v) for v in range(0, 100_000, 100)], "numerical"),
        ("change", [v - 35 for v in range(70)] * 100, "numerical"),
        ("change", [v - 30 for v in range(60)] * 100, "categorical"),
        ("user_id", [v - 35 for v in range(70)] * 100, "numerical"),
        ("age", list(range(18, 60)) * 10, "numerical"),
        ("age", list(range(18, 60)) * 30, "categorical"),
        ("zip code", list(range(18, 60)) * 10, "categorical"),
        ("duration", list(range(10_000)) * 4, "numerical"),
        ("tag", list(range(10_001)) * 4, "categorical"),
        ("sparse", list(range(0, 42_000, 1000)) * 10, "categorical"),
        ("place", [f"0{v}" for v in range(100, 200)], "categorical"),
        ("nothing", [None, None], "categorical"),
        ("digits", ["9" * 40 + str(v) for v in range(10)], "categorical"),
    ],
)
def test_kind(name: str, values: list[object], kind: str) -> None:
    assert infer_kind(pl.Series(name, values)).kind == kind


def test_large_integers_are_compared_exactly() -> None:
    # As floats these 100 ids would be one value, and so would look like a code seen in every row.
    values = [2**60 + v for v in range(100)]
    assert infer_kind(pl.Series("amount", values)).kind == "numerical"
    assert infer_kind(pl.Series("account", values)).kind == "categorical"


@pytest.mark.parametrize(
    "name", ["id", "user_id", "userId", "movieid", "ZIP", "item", "flight no", "patient_nbr", "Code2"]
)
def test_id_names(name: str) -> None:
    assert is_id_name(name)


@pytest.mark.parametrize("name", ["paid", "humidity", "width", "notes", "", "amount"])
def test_other_names(name: str) -> None:
    assert not is_id_name(name)


def with_targets(name: str, values: np.ndarray, target: np.ndarray) -> KindChoice:
    column = pl.Series(name, values)
    counted = add_halves(distinct_values(column), column, target.astype(float))
    return infer_kind(counted["value"].alias(name), ("",), counted)


def test_targets_decide_on_whole_numbers() -> None:
    rng = np.random.default_rng(0)
    n_rows = 20_000
    age, seconds, movie = rng.integers(18, 80, n_rows), rng.integers(0, 3_000, n_rows), rng.integers(0, 2_000, n_rows)
    of_movie = rng.normal(size=2_000) * 3
    noise = rng.normal(size=n_rows)
    assert with_targets("age", age, age / 20 + noise) == KindChoice("both", "ordered")
    assert with_targets("age", age, noise) == KindChoice("categorical", "unordered")
    assert with_targets("seconds", seconds, seconds / 500 + noise) == KindChoice("numerical", "ordered")
    assert with_targets("movie", movie, of_movie[movie] + noise) == KindChoice("categorical", "unordered")
    assert with_targets("user_id", movie, movie + noise) == KindChoice("categorical", "name")


def test_codes_in_a_meaningful_order_keep_their_ids() -> None:
    rng = np.random.default_rng(1)
    movie = rng.integers(0, 2_000, 20_000)
    effect = np.linspace(-3, 3, 2_000) + rng.normal(size=2_000) * 2
    assert with_targets("movie", movie, effect[movie] + rng.normal(size=20_000)) == KindChoice("both", "ordered")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["|".join(f"g{g}" for g in {i % 7, i % 5 + 7, i % 11 + 12, i % (3 + i % 4)}) for i in range(300)], "list"),
        ([[1, 2], [2], []], "list"),
        (["2024-01-31", "2024-02-01"], "date"),
        ([f"the {i}th note about room {i * 7} was {'good' if i % 3 else 'bad'} again" for i in range(200)], "text"),
    ],
)
def test_kinds_of_other_cells(values: list[object], kind: str) -> None:
    assert infer_kind(pl.Series("column", values)).kind == kind

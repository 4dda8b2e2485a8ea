import polars as pl
import pytest

from fielddep.encoding.kinds import infer_kind, is_id_name


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("colour", ["red", "blue", "red"], "categorical"),
        ("flag", [True, False, True], "categorical"),
        ("price", [1.5, 2.0, 2.0], "numerical"),
        ("price", ["1.5", "2", ""], "numerical"),
        ("hour", list(range(24)) * 50, "categorical"),
        ("hour", [float(h) for h in range(24)] * 50, "categorical"),
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

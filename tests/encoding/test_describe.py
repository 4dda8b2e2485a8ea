import json
import time

import numpy as np
import polars as pl
import pytest

from fielddep.config.settings import Config
from fielddep.encoding.describe import FieldSummary, TableDescription, TargetSummary, describe, follows_target
from fielddep.errors import SchemaError
from tests.helpers import raises, states

N = 200


def table(**columns: object) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    base = {
        "colour": ["red", "red", "blue", None] * (N // 4),
        "price": rng.normal(size=N).round(4),
        "late": rng.integers(0, 2, N),
    }
    return pl.DataFrame({**base, **columns})


def run(frame: pl.DataFrame, **settings: object) -> TableDescription:
    return describe(frame, Config().replace({"data.target": "late", **settings}))


def column(description: TableDescription, name: str) -> FieldSummary:
    return next(c for c in description.columns if c.name == name)


def warnings(frame: pl.DataFrame, name: str, **settings: object) -> tuple[str, ...]:
    return column(run(frame, **settings), name).warnings


def test_summary_of_a_field() -> None:
    summary = column(run(table()), "colour")
    assert summary == FieldSummary(
        name="colour",
        dtype="String",
        kind="categorical",
        n_distinct=2,
        missing_share=0.25,
        examples=(("red", N // 2), ("blue", N // 4)),
        reason="text",
    )


def test_target_summaries() -> None:
    frame = table(late=["no"] * 150 + ["yes"] * 50)
    assert run(frame).target == TargetSummary(name="late", task="binary", classes=("no", "yes"), shares=(0.75, 0.25))
    regression = run(table(late=[1.0, 3.0] * (N // 2)), **{"data.task": "regression"})
    assert regression.target == TargetSummary(name="late", task="regression", mean=2.0, std=1.0)


PARTS = {"split.method": "column", "split.column": "part"}


def test_kinds_of_columns() -> None:
    frame = table(w=[1.0, 2.0] * (N // 2), part=["train", "test"] * (N // 2), one=["x"] * N)
    description = run(frame, **{"data.weight": "w", **PARTS, "data.exclude": ["price"]})
    assert {c.name: c.kind for c in description.columns} == {
        "colour": "categorical",
        "price": "left out",
        "late": "target",
        "w": "weight",
        "part": "left out",
        "one": "left out",
    }
    assert description.n_rows == N


def test_works_without_a_target_and_with_one_field() -> None:
    description = describe(pl.DataFrame({"a": ["x", "y"]}), Config())
    assert description.target is None
    assert description.columns[0].kind == "categorical"


def test_bad_names_are_refused() -> None:
    with raises(SchemaError, "'late'"):
        run(table(), **{"data.target": "lat"})


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        (["x"] * N, "it is constant"),
        ([None] * N, "all its values are missing"),
        ([f"v{i}" for i in range(N)], "it has one value per row"),
        (["a", None, None, None] * (N // 4), "75% of its values are missing"),
        (["a", "b" * 1001] * (N // 2), "its longest value has 1001 characters"),
    ],
)
def test_warnings(values: list[object], warning: str) -> None:
    assert warnings(table(x=pl.Series(values)), "x") == (warning,)
    kept = {"data.kinds": {"x": "categorical"}}
    assert warnings(table(x=pl.Series(values)), "x", **kept) == (warning,)


LEAK = ("suspected leak: it alone determines the target 'late'",)


def test_leaks_of_a_class() -> None:
    frame = table()
    late = frame["late"]
    assert warnings(frame, "colour") == ()
    assert warnings(frame, "price") == ()
    assert warnings(frame.with_columns(x=late.cast(pl.String) + "!"), "x") == LEAK
    many = late.cast(pl.String) + pl.Series(np.arange(N) % 30).cast(pl.String)
    assert warnings(frame.with_columns(x=many), "x") == LEAK
    amount = late * 10 + pl.Series(np.random.default_rng(1).random(N))
    assert warnings(frame.with_columns(x=amount), "x") == LEAK
    assert warnings(frame.with_columns(x=-amount), "x") == LEAK
    # One row that contradicts it is enough to clear a field.
    flipped = late.to_list()
    flipped[0] = 1 - flipped[0]
    assert warnings(frame.with_columns(x=pl.Series(flipped)), "x") == ()


def test_chance_is_no_leak() -> None:
    # Two positives among 200: pairs of rows agree nearly always, whatever the field.
    frame = table(late=[1, 1] + [0] * (N - 2), x=[f"v{i // 2}" for i in range(N)])
    assert warnings(frame, "x") == ()


def test_leaks_of_a_number() -> None:
    rng = np.random.default_rng(2)
    late = rng.normal(size=N)
    frame = table(late=late, rank=np.exp(late), falling=-late, noise=late + 0.1 * rng.normal(size=N))
    assert warnings(frame, "rank") == LEAK
    assert warnings(frame, "falling") == LEAK
    assert warnings(frame, "noise") == ()
    groups = rng.integers(0, 25, N)
    by_group = table(late=rng.normal(size=25)[groups], group=[f"g{g}" for g in groups])
    assert warnings(by_group, "group") == LEAK


EMPTY_LEAK = ("suspected leak: whether it is empty goes with the target 'late'",)


@pytest.mark.parametrize("values", ["numbers", "texts", "numbers with NA"])
def test_leaks_by_emptiness(values: str) -> None:
    rng = np.random.default_rng(1)
    frame = table(late=rng.permutation([1] * 60 + [0] * (N - 60)))
    numbers = pl.Series(rng.normal(size=N).round(3))
    shown = numbers.cast(pl.String).str.slice(0, 3) + "x" if values == "texts" else numbers
    absent = "NA" if values == "numbers with NA" else None
    shown = shown.cast(pl.String) if absent else shown

    def found(filled: pl.Series, **settings: object) -> tuple[str, ...]:
        x = pl.select(pl.when(filled).then(shown).otherwise(pl.lit(absent, shown.dtype))).to_series()
        said = warnings(frame.with_columns(x=x), "x", **settings)
        return tuple(text for text in said if "leak" in text)

    late = frame["late"] == 1
    assert found(late) == EMPTY_LEAK
    assert found(~late) == EMPTY_LEAK
    assert found(late, **{"data.exclude": ["x"]})
    contrary = pl.Series(np.arange(N))
    assert found(late ^ (contrary < 4)) == EMPTY_LEAK
    assert found(late ^ (contrary < 20)) == ()
    assert found(pl.Series(rng.random(N) < 0.3)) == ()


def test_emptiness_by_chance_is_no_leak() -> None:
    late = pl.Series([1] * 4 + [0] * (N - 4))
    x = pl.select(pl.when(late == 1).then(pl.lit("a")).otherwise(None)).to_series()
    assert warnings(table(late=late), "colour") == ()
    assert not follows_target(x.is_not_null(), late)
    few = pl.Series([1.0] * 6 + [0.0] * 6)
    assert not follows_target(few == 1, few)  # one in 924
    assert follows_target(pl.Series([True] * 12 + [False] * 12), pl.Series([1.0] * 12 + [0.0] * 12))


def test_emptiness_and_a_target_of_many_values() -> None:
    rng = np.random.default_rng(3)
    classes = pl.Series(rng.choice(["a", "b", "c"], N))
    x = pl.Series(rng.choice(["u", "v"], N))
    of_class = pl.select(pl.when(classes == "b").then(x)).to_series()
    assert EMPTY_LEAK[0] in warnings(table(late=classes, x=of_class), "x")
    amounts = pl.Series(rng.normal(size=N)).set(pl.Series(rng.random(N) < 0.7), 0.0)
    of_amount = pl.select(pl.when(amounts != 0).then(x)).to_series()
    assert EMPTY_LEAK[0] in warnings(table(late=amounts, x=of_amount), "x")


def hinted(values: list[str], **settings: object) -> bool:
    return any("data.missing_values" in text for text in warnings(table(x=pl.Series(values)), "x", **settings))


NUMBERS = [f"{i % 40:03d}" for i in range(N - 1)]
WORDS = ["red", "blue", "green", "unknown"] * (N // 4)


@pytest.mark.parametrize("text", ["NULL", "NA", "N/A", "?", "-", "none", " ? "])
def test_texts_that_look_missing(text: str) -> None:
    said = warnings(table(x=pl.Series([*NUMBERS, text])), "x")
    assert len(said) == 1
    assert states(said[0], "data.missing_values")
    assert repr(text) in said[0]
    assert not hinted([*NUMBERS, text], **{"data.missing_values": [text]})
    assert not hinted([*NUMBERS, text], **{"data.exclude": ["x"]})
    assert hinted([*WORDS[:-10], *[text] * 10])
    assert not hinted([*WORDS[:-1], text])  # rare among texts


def test_texts_that_do_not_look_missing() -> None:
    assert not hinted(WORDS)
    assert not hinted([*NUMBERS, "unknown"])
    assert not hinted(["?"] * N)
    assert not hinted([*map(str, np.random.default_rng(0).normal(size=N - 1)), "NA"])  # numerical, so NA is missing


def test_missing_numbers_are_counted() -> None:
    numbers = np.random.default_rng(0).normal(size=N - 50).round(3)
    summary = column(run(table(x=pl.Series([*map(str, numbers), *["NA"] * 50]))), "x")
    assert (summary.kind, summary.missing_share) == ("numerical", 0.25)
    assert "NA" not in dict(summary.examples)


def test_json_is_plain() -> None:
    plain = json.loads(json.dumps(run(table()).to_json()))
    assert plain["n_rows"] == N
    assert plain["target"]["classes"] == [0, 1]
    assert plain["columns"][0]["examples"] == [["red", 100], ["blue", 50]]


def test_bounded_time() -> None:
    rng = np.random.default_rng(0)
    n = 200_000
    frame = pl.DataFrame({f"c{i}": rng.integers(0, 10 ** (i % 6 + 1), n) for i in range(20)})
    start = time.perf_counter()
    run(frame.with_columns(late=pl.Series(rng.integers(0, 2, n))))
    assert time.perf_counter() - start < 30


def test_a_nested_column_that_is_left_out_can_be_described() -> None:
    frame = table().with_columns(tags=pl.Series([[1, 2]] * len(table())))
    summary = column(run(frame, **{"data.exclude": ["tags"]}), "tags")
    assert (summary.n_distinct, summary.examples, summary.missing_share) == (0, (), 0.0)
    assert summary.dtype == "List(Int64)"


def test_lists_and_text_are_described_by_their_values() -> None:
    rng = np.random.default_rng(1)
    names = ["Action", "Comedy", "Drama", "War"]
    cells = [list(rng.permutation(names)[: rng.integers(1, 4)]) for _ in range(N)]
    words = [" ".join(rng.choice(["good", "bad", "food", "place", "price"], 7)) for _ in range(N)]
    frame = table(genres=["|".join(cell) for cell in cells], typed=cells, comment=words)
    found = run(frame)
    for name, kind, separator in (("genres", "list", "|"), ("typed", "list", None), ("comment", "text", None)):
        summary = column(found, name)
        assert (summary.kind, summary.separator) == (kind, separator)
        assert summary.n_distinct == (5 if name == "comment" else 4)
        assert summary.warnings == ()
    assert column(found, "genres").examples == column(found, "typed").examples
    json.dumps(found.to_json())


def test_a_likely_separator_is_suggested() -> None:
    rng = np.random.default_rng(1)
    cells = [",".join(rng.permutation(list("abcdef"))[: rng.integers(1, 4)]) for _ in range(N)]
    (warning,) = warnings(table(tags=cells), "tags")
    assert states(warning, "data.lists.tags")
    assert warnings(table(tags=cells), "tags", **{"data.kinds.tags": "categorical"}) == ()
    assert warnings(table(tags=cells), "tags", **{"data.lists.tags": ","}) == ()

"""Several values in one cell: how cells are split, which columns are lists or text, and what becomes of them."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.config.settings import Config
from fielddep.encoding.coded import Sizes
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldEncoder
from fielddep.encoding.lists import list_separator, looks_like_text, split_cells, split_value
from fielddep.encoding.one_row import NeedsColumnsError, missing_texts
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.schema import Field, plan_field
from fielddep.encoding.values import distinct_values
from fielddep.errors import SchemaError, UnknownValueError
from fielddep.store.build import build_store
from fielddep.tables.readers import read_memory
from tests.helpers import raises

CELLS = [["a", "b"], ["b"], [], None, ["c", "a", "a"]] * 6
TEXTS = [None if cell is None else "|".join(cell) for cell in CELLS]
N = len(CELLS)


def config(**data: object) -> Config:
    settings = {"target": "y", "crosses": "none", **data}
    return Config().replace({f"data.{key}": value for key, value in settings.items()})


def table(tags: object) -> pl.DataFrame:
    return pl.DataFrame({"tags": tags, "user": ["u", "v", "w"] * (N // 3), "y": [0, 1] * (N // 2)})


def encoder_of(frame: pl.DataFrame, **data: object) -> Encoder:
    return build_store(frame, config(**data), parts=np.zeros(len(frame), dtype=np.uint8)).encoder


def lists_of(encoder: Encoder, frame: pl.DataFrame) -> list[list[int]]:
    return encoder.encode(frame)[0].lists_R(0).to_lists()


def test_values_of_a_cell_have_ids_and_counts() -> None:
    encoder = encoder_of(table(CELLS))
    labels = encoder.values("tags").to_list()
    assert labels == ["<missing>", "<rare>", "a", "b", "c"]
    assert encoder.counts[0].tolist() == [12, 0, 18, 12, 6]
    assert lists_of(encoder, table(CELLS))[:5] == [[2, 3], [3], [0], [0], [4, 2, 2]]
    rows = encoder.encode(table(CELLS))[0]
    assert rows.ids_RF[:5, 0].tolist() == [1, 3, 0, 0, 1]
    assert encoder.layout.lists == (0,)
    assert encoder.decode(rows)["tags"].to_list()[:5] == ["a, b", "b", None, None, "c, a, a"]


def test_lists_of_any_type_and_text_with_a_separator_have_the_same_ids() -> None:
    pandas = pd.DataFrame({"tags": CELLS, "user": ["u", "v", "w"] * (N // 3), "y": [0, 1] * (N // 2)})
    arrow = pa.table({"tags": pa.array(CELLS), "user": ["u", "v", "w"] * (N // 3), "y": [0, 1] * (N // 2)})
    typed = encoder_of(table(CELLS))
    texts = encoder_of(table(TEXTS), lists={"tags": "|"})
    expected = lists_of(typed, table(CELLS))
    for found in (typed, texts, encoder_of(read_memory(pandas)), encoder_of(read_memory(arrow))):
        assert found.values("tags").to_list() == typed.values("tags").to_list()
        assert lists_of(found, table(CELLS)) == expected
    assert lists_of(texts, table(TEXTS)) == expected


def test_numbers_in_lists_are_the_same_values_as_their_texts() -> None:
    whole = encoder_of(table([[1, 2], [2]] * (N // 2)))
    for cells in ([[1.0, 2.0], [2.0]], [["1.0", "2"], ["2"]]):
        assert lists_of(whole, table(cells * (N // 2))) == [[3, 2], [2]] * (N // 2)
    fixed = table(pl.Series([[1, 2], [2, 2]] * (N // 2), dtype=pl.Array(pl.Int64, 2)))
    assert lists_of(whole, fixed)[:2] == [[3, 2], [2, 2]]


def test_unseen_values_are_rare_and_an_empty_cell_is_rare_if_none_was_empty() -> None:
    encoder = encoder_of(table([["a", "b"], ["b"]] * (N // 2)))
    assert lists_of(encoder, table([["a", "z"], None] * (N // 2)))[:2] == [[3, 1], [1]]
    report = encoder.encode(table([["a", "z"], ["z"], None] * (N // 3)))[1]
    assert report.unknown["tags"] == N // 3
    assert report.missing["tags"] == N // 3
    rows = encoder.encode(table([["a", "z"], ["z"], ["b"]] * (N // 3)))[0]
    assert encoder.report(rows).unknown["tags"] == N // 3


def test_unseen_values_can_be_refused_with_their_row() -> None:
    encoder = encoder_of(table([["a", "b"], ["b"]] * (N // 2)), handle_unknown="error")
    with raises(UnknownValueError, "'z'", "row 1"):
        encoder.encode(table([["a"], ["b", "z"]] * (N // 2)))
    assert encoder.encode_row({"tags": ["z"], "user": "u"}) is None


def test_an_encoder_with_lists_survives_saving() -> None:
    encoder = encoder_of(table(TEXTS), lists={"tags": "|"})
    again = Encoder.from_parts(encoder.to_json(), encoder.vocabulary_frame(), encoder.cells())
    assert again.schema == encoder.schema and again.digest == encoder.digest
    assert again.layout == encoder.layout
    assert lists_of(again, table(TEXTS)) == lists_of(encoder, table(TEXTS))


def test_the_state_of_fields_without_lists_is_written_as_before() -> None:
    assert Field(name="a", kind="categorical").to_json() == {"name": "a", "kind": "categorical", "numeric": None}


cells = st.one_of(
    st.none(),
    st.text(alphabet="ab|5.0 ?T", max_size=8),
    st.lists(st.one_of(st.none(), st.text(alphabet="ab5.0?", max_size=4)), max_size=4),
    st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=4),
)


@settings(deadline=None, max_examples=200)
@given(cells, st.sampled_from(["|", None, "; "]))
def test_one_cell_is_split_as_in_a_column(value, separator) -> None:
    column = pl.DataFrame({"a": [value]})["a"]
    expected = split_cells(column, "list", separator, ("?",)).values.to_list()
    assert split_value(value, "list", separator, missing_texts(["?"])) == expected


def test_a_row_may_mix_types_in_a_list() -> None:
    assert split_value([1, "a", None, "5.0"], "list", None, missing_texts([])) == ["1", "a", "5"]


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.none(), st.text(max_size=12)))
def test_one_text_is_split_as_in_a_column(value) -> None:
    expected = split_cells(pl.Series([value], dtype=pl.String), "text", None, ("?",)).values.to_list()
    try:
        assert split_value(value, "text", None, missing_texts(["?"])) == expected
    except NeedsColumnsError:
        assert not value.isascii()


def test_words_are_letters_and_digits_of_any_script_in_lower_case() -> None:
    words = split_cells(pl.Series(["Été-2024: don't  PANIC", "größe 5,0", "—", None]), "text", None)
    assert words.values.to_list() == ["été", "2024", "don", "t", "panic", "größe", "5", "0"]
    assert words.lengths.tolist() == [5, 3, 0, 0]


# --- which columns are lists ------------------------------------------------------------------------------------


def plan(values: object, **data: object) -> Field | str:
    found = plan_field("tags", distinct_values(pl.Series("tags", values)), config(**data).data)
    return found if isinstance(found, str) else found[0]


def genres(separator: str, n: int = 200) -> list[str]:
    rng = np.random.default_rng(0)
    names = ["Action", "Comedy", "Drama", "Film-Noir", "War", "Western"]
    return [separator.join(rng.permutation(names)[: rng.integers(1, 4)]) for _ in range(n)]


@pytest.mark.parametrize("separator", ["|", ";"])
def test_a_clear_separator_is_found(separator) -> None:
    assert plan(genres(separator)) == Field(name="tags", kind="list", separator=separator)
    assert plan(genres(separator), kinds={"tags": "categorical"}) == Field(name="tags", kind="categorical")


def test_a_comma_is_only_suggested() -> None:
    column = pl.Series("tags", genres(","))
    assert list_separator(distinct_values(column), ()) == (",", False)
    assert plan(genres(",")) == Field(name="tags", kind="categorical")
    assert plan(genres(","), kinds={"tags": "list"}) == Field(name="tags", kind="list", separator=",")


@pytest.mark.parametrize(
    "values",
    [
        [f"{a}|{b}" for a in range(9) for b in range(9)] * 3,  # codes of two parts
        [f"k{i}|k{i + 1}" for i in range(100)],  # no value repeats
        ["yes", "no", "yes|no"] * 30,
        genres("|")[:10],
    ],
)
def test_what_is_no_list(values) -> None:
    assert plan(values, fields=["tags", "user"]) == Field(name="tags", kind="categorical")


def test_a_list_given_as_text_needs_a_separator() -> None:
    with raises(SchemaError, "data.lists.tags"):
        plan(["a", "b"] * 20, kinds={"tags": "list"})
    assert plan(["a", "b"] * 20, lists={"tags": "+"}) == Field(name="tags", kind="list", separator="+")


def test_lists_are_no_target_and_no_part_of_a_cross() -> None:
    with raises(SchemaError, "'tags'"):
        encoder_of(table(CELLS), target="tags")
    with raises(SchemaError, "'tags'"):
        encoder_of(table(CELLS), crosses=[["tags", "user"]])


# --- text -------------------------------------------------------------------------------------------------------

WORDS = "the quick brown fox jumps over a lazy dog near one small red house on that hill".split(" ")  # noqa: SIM905


def comments(n: int = 80) -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(WORDS, rng.integers(4, 9))).capitalize() + "." for _ in range(n)]


def test_text_is_found_where_cells_are_long_and_differ() -> None:
    assert plan(comments()) == Field(name="tags", kind="text")
    assert plan(comments(), kinds={"tags": "categorical"}) == Field(name="tags", kind="categorical")
    assert plan(["good", "bad"] * 20, kinds={"tags": "text"}) == Field(name="tags", kind="text")


@pytest.mark.parametrize(
    "values",
    [
        [f"{i:08x}-{i * 7919:08x}-{i * 104729:08x}-{i * 15485863:08x}" for i in range(1000, 1100)],
        [str(datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=i)) for i in range(200)],
        comments()[:4] * 20,
        [f"user number {i}" for i in range(100)],
    ],
)
def test_what_is_no_text(values) -> None:
    assert not looks_like_text(distinct_values(pl.Series("tags", values)), ())


def test_words_seen_once_are_rare_and_only_the_most_frequent_are_kept() -> None:
    texts = [f"common words here once{i}" for i in range(N)]
    encoder = encoder_of(table(texts), kinds={"tags": "text"})
    assert encoder.values("tags").to_list()[2:] == ["common", "here", "words"]
    encoder = encoder_of(table(texts), kinds={"tags": "text"}, text_words=2)
    assert encoder.values("tags").to_list()[2:] == ["common", "here"]
    assert encoder.counts[0].tolist() == [0, 2 * N, N, N]
    every = encoder_of(table(texts), kinds={"tags": "text"}, min_count={"tags": 1})
    assert len(every.values("tags")) == 2 + 3 + N


def test_text_is_kept_where_a_column_of_keys_is_skipped_while_reading() -> None:
    rng = np.random.default_rng(1)
    words = [f"{' '.join(rng.choice(WORDS, 7))} {i}" for i in range(256)]
    frame = pl.DataFrame({"comment": words, "key": [f"k{i}" for i in range(256)], "a": [1, 2] * 128, "y": [0, 1] * 128})
    frame = frame.with_columns(b=pl.Series([1, 1, 2, 2] * 64))
    store = build_store(
        frame, config(kinds={"a": "categorical"}), sizes=Sizes(chunk_rows=32, judged_rows=64, part_rows=32)
    )
    assert {field.name: field.kind for field in store.encoder.schema.fields}["comment"] == "text"
    assert [name for name, _ in store.encoder.schema.skipped] == ["key"]


# --- shared values ----------------------------------------------------------------------------------------------


def shop() -> pl.DataFrame:
    return table(CELLS).with_columns(item=pl.Series(["a", "d", "a"] * (N // 3))).select("tags", "item", "user", "y")


def test_fields_can_share_values_and_ids() -> None:
    encoder = encoder_of(shop(), shares={"tags": "item"})
    assert (
        encoder.values("tags").to_list()
        == encoder.values("item").to_list()
        == [*("<missing>", "<rare>", "a", "b", "d", "c")]
    )
    assert encoder.counts[0].tolist() == [12, 0, 18 + 20, 12, 10, 6]
    layout = encoder.layout
    assert layout.shares == ((0, 1),) and layout.offsets[0] == layout.offsets[1]
    assert layout.n_ids_total == 6 + 5
    inputs = encoder.encode(shop())[0].batch().inputs
    assert inputs.lists[0].ids_V[0] == inputs.ids_BF[0, 1]  # both are "a"
    again = Encoder.from_parts(encoder.to_json(), encoder.vocabulary_frame(), encoder.cells())
    assert again.layout == layout and again.digest == encoder.digest


@pytest.mark.parametrize("shares", [{"tags": "user", "user": "item"}, {"tags": "tags"}])
def test_a_field_shares_the_values_of_one_that_has_its_own(shares) -> None:
    with raises(SchemaError, "data.shares"):
        encoder_of(shop(), shares=shares)


def test_numbers_that_are_shared_are_values() -> None:
    frame = shop().with_columns(item=pl.Series(np.arange(N) * 1.5), tags=pl.Series([[1.5, 3.0]] * N))
    encoder = encoder_of(frame, shares={"tags": "item"})
    assert encoder.schema.fields[1].kind == "categorical"
    assert encoder.counts[0][2:4].tolist() == [N + 1, N + 1]


def test_names_of_lists_and_shares_are_checked() -> None:
    with raises(SchemaError, "'tag'"):
        encoder_of(shop(), lists={"tag": "|"})
    with raises(SchemaError, "'itm'"):
        encoder_of(shop(), shares={"tags": "itm"})


def test_ragged_rows() -> None:
    lists = Ragged.of([[1], [2, 3], [4]])
    assert lists[3:].to_lists() == [] and lists[-2:].to_lists() == [[2, 3], [4]]
    assert Ragged.concat([lists[:1], lists[1:]]).to_lists() == lists.to_lists()
    assert lists.row_V.tolist() == [0, 1, 1, 2]


def test_the_cells_of_a_list_are_shown_joined() -> None:
    field = Field(name="tags", kind="list", separator="|")
    counted = distinct_values(pl.Series("tags", TEXTS))
    cells = pl.Series("tags", ["b|a", ""])
    shown = FieldEncoder.from_counts(field, counted, config().data).cell_texts(cells, cells)
    assert shown.to_list() == ["b, a", None]

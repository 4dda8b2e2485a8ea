"""Predictions from any table: in bounded memory, in the table's order, whatever else the table holds."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error, roc_auc_score

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.artifacts.run import Run
from fielddep.config.data import DataConfig
from fielddep.encoding.encoder import Encoder
from fielddep.errors import BundleError, SchemaError, TableError, UserError
from fielddep.tables.delimited import Place
from fielddep.tables.row_stream import RowStream, read_table
from fielddep.training.fit import fit
from tests.conftest import quick_config, small_frame
from tests.helpers import raises, states

FRAME = small_frame(300)
NEW = small_frame(100, seed=5)


def train(frame: pl.DataFrame, **settings: object) -> Bundle:
    fitted = fit(frame, quick_config(train__max_epochs=2, **settings))
    return Bundle.of(fitted)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return train(FRAME)


@pytest.fixture(scope="module")
def predictor(bundle: Bundle) -> Predictor:
    return Predictor(bundle)


def numbers(frame: pl.DataFrame) -> np.ndarray:
    return frame.drop("prediction").to_numpy()


# --- streaming ------------------------------------------------------------------------------------------------


def test_chunks_give_what_the_whole_gives(bundle, predictor):
    whole = predictor.predict(NEW)
    chunked = Predictor(bundle, chunk_rows=7)
    sizes = [len(frame) for frame, _ in chunked.stream(NEW)]
    assert sizes == [7] * 14 + [2]
    np.testing.assert_allclose(numbers(chunked.predict(NEW)), numbers(whole), atol=1e-6)
    assert chunked.predict(NEW)["prediction"].to_list() == whole["prediction"].to_list()
    expected, found = predictor.evaluate(NEW), chunked.evaluate(NEW)
    assert found["logloss"] == pytest.approx(expected["logloss"], abs=1e-6)
    # Rows of equal values may differ in the last bit from chunk to chunk, which breaks ties between them.
    assert found["auc"] == pytest.approx(expected["auc"], abs=0.01)


def test_a_stream_reads_no_more_than_it_must(bundle):
    read: list[int] = []

    def rows(columns: list[str], place: Place):
        for chunk in NEW.select(columns).iter_slices(10):
            read.append(len(chunk))
            yield chunk, place

    stream = Predictor(bundle, chunk_rows=10).stream(RowStream(schema=NEW.schema, sources=(), readers=(rows,)))
    next(stream)
    assert read == [10]
    next(stream)
    assert read == [10, 10]


def test_large_chunks_are_cut_into_batches(bundle, predictor, monkeypatch):
    whole = predictor.predict(NEW)
    monkeypatch.setattr("fielddep.nn.model.BATCH_ROWS", 9)
    np.testing.assert_allclose(numbers(Predictor(bundle).predict(NEW)), numbers(whole), atol=1e-6)


def test_rows_keep_their_order(predictor):
    order = np.random.default_rng(0).permutation(len(NEW))
    straight, shuffled = predictor.predict(NEW), predictor.predict(NEW[order])
    np.testing.assert_allclose(numbers(shuffled), numbers(straight)[order], atol=1e-6)


def test_predicting_changes_nothing(bundle, predictor):
    before = {name: weight.clone() for name, weight in bundle.model.state_dict().items()}
    first, second = predictor.predict(NEW), predictor.predict(NEW)
    assert first.equals(second)
    assert all((bundle.model.state_dict()[name] == weight).all() for name, weight in before.items())


# --- columns --------------------------------------------------------------------------------------------------


def test_target_and_other_columns_are_ignored(predictor):
    odd = NEW.with_columns(good=pl.lit("no label at all"), other=pl.lit(None)).select(
        "other", "good", "size", "shape", "colour"
    )
    assert predictor.predict(odd).equals(predictor.predict(NEW.drop("good")))


def test_all_absent_columns_are_named(predictor):
    with raises(SchemaError, "'colour'", "'shape'", "'Colour'"):
        predictor.predict(NEW.rename({"colour": "Colour"}).drop("shape"))
    with raises(SchemaError, "'good'"):
        predictor.evaluate(NEW.drop("good"))


def test_many_absent_columns_are_told_in_one_short_line():
    names = [f"field_{letter}" for letter in "abcdefgh"]
    frame = FRAME.with_columns(pl.col("colour").alias(name) for name in names)
    predictor = Predictor(train(frame))
    with raises(SchemaError, 8, "'field_a'", "'field_e'", "3 more", "'Field_A'") as caught:
        predictor.predict(NEW.with_columns(pl.lit("red").alias("Field_A")))
    message = str(caught.value)
    assert "field_f" not in message
    assert "\n" not in message
    assert len(message) < 160
    with raises(SchemaError, "'field_a'", "'??'"):
        predictor.predict(NEW.select(pl.col("colour").alias("??")))
    with raises(SchemaError, "1 column", "'field_c'") as caught:
        predictor.predict(frame.drop("field_c"))
    assert "mean" not in str(caught.value)  # similar columns are fields of their own
    with raises(SchemaError, message):
        predictor.predict_row({**NEW.row(0, named=True), "Field_A": "red"})


def test_columns_of_the_predictions(predictor):
    frame = predictor.predict(NEW)
    assert frame.columns == ["prediction", "probability_0", "probability_1"]
    assert frame["prediction"].to_list() == (frame["probability_1"] > 0.5).cast(pl.Int64).to_list()
    np.testing.assert_allclose(numbers(frame).sum(axis=1), 1.0, atol=1e-6)


def test_unknown_and_missing_values_are_counted(bundle):
    odd = NEW.with_columns(
        colour=pl.when(pl.int_range(100) < 30).then(pl.lit("mauve")).otherwise("colour"),
        shape=pl.when(pl.int_range(100) % 10 == 0).then(None).otherwise("shape"),
    )
    reports = [report for _, report in Predictor(bundle, chunk_rows=33).stream(odd)]
    assert [report.n_rows for report in reports] == [33, 33, 33, 1]
    total = reports[0].merge(reports[1]).merge(reports[2]).merge(reports[3])
    assert total.unknown == {"colour": 30, "shape": 0, "size": 0}
    assert total.missing == {"colour": 0, "shape": 10, "size": 0}
    assert total.unknown_shares["colour"] == 0.3
    assert total.missing_shares["shape"] == 0.1


def test_many_unknown_values_are_warned_of_once(bundle):
    predictor = Predictor(bundle, chunk_rows=33)
    assert predictor.unknown == {}
    odd = NEW.with_columns(
        colour=pl.when(pl.int_range(100) < 11).then(pl.lit("mauve")).otherwise("colour"),
        shape=pl.when(pl.int_range(100) < 10).then(pl.lit("blob")).otherwise("shape"),
    )
    with pytest.warns(UserWarning, match="'colour'") as caught:
        predictor.predict(odd)
    [message] = [str(warning.message) for warning in caught]
    states(message, "'colour'", "11 %")
    assert "shape" not in message
    assert predictor.unknown == {"colour": 0.11, "shape": 0.1, "size": 0.0}
    with pytest.warns(UserWarning, match="'shape' .*'colour'") as caught:
        predictor.predict(odd.with_columns(shape=pl.lit("blob")))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor.predict(NEW.with_columns(size=None, shape=pl.lit(None, dtype=pl.String)))
        assert predictor.unknown == {"colour": 0.0, "shape": 0.0, "size": 0.0}
        predictor.predict_row({"colour": datetime.date(2026, 1, 1), "shape": "blob", "size": 1.0})
        list(predictor.stream(odd))
        predictor.evaluate(odd)
        predictor.predict(NEW.clear().lazy())
    assert predictor.unknown == {}


def test_a_new_value_in_a_single_row_is_no_warning(bundle):
    predictor = Predictor(bundle)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor.predict({"colour": "violet", "shape": "cube", "size": 0.5})
    assert predictor.unknown["colour"] == 1.0


def test_a_table_without_rows(predictor, tmp_path):
    empty = predictor.predict(NEW.clear().lazy())
    full = predictor.predict(NEW)
    assert empty.schema == full.schema
    assert len(empty) == 0
    with raises(TableError, "no rows"):
        predictor.predict(NEW.clear())
    NEW.clear().write_csv(tmp_path / "empty.csv")
    with raises(TableError, "empty.csv"):
        predictor.predict(tmp_path / "empty.csv")
    with raises(SchemaError, "'colour'"):
        predictor.predict(NEW.clear().drop("colour").lazy())


# --- where the table comes from -------------------------------------------------------------------------------


def test_files_and_frames_of_the_same_rows_agree(predictor, tmp_path):
    odd = NEW.with_columns(shape=pl.when(pl.int_range(100) < 5).then(None).otherwise("shape"))
    expected = predictor.predict(odd)
    odd.write_csv(tmp_path / "new.csv")
    odd.write_csv(tmp_path / "new.tsv", separator="\t")
    odd.write_parquet(tmp_path / "new.parquet")
    odd.write_ipc(tmp_path / "new.arrow")
    sources = [tmp_path / name for name in ("new.csv", "new.tsv", "new.parquet", "new.arrow")]
    for source in (*sources, odd.to_pandas(), odd.to_arrow(), odd.lazy(), odd.to_dict(as_series=False)):
        assert predictor.predict(source).equals(expected), source


def test_a_bundle_may_be_given_by_its_folder(bundle, predictor, tmp_path):
    bundle.save(tmp_path / "bundle")
    assert Predictor(tmp_path / "bundle").predict(NEW).equals(predictor.predict(NEW))


def test_the_folder_of_a_run_will_do(tmp_path, monkeypatch):
    run = Run.train(FRAME, quick_config(train__max_epochs=2), tmp_path / "run")
    expected = Predictor(run.bundle).predict(NEW)
    assert Predictor(run.folder).predict(NEW).equals(expected)
    assert Predictor(str(run.folder)).predict(NEW).equals(expected)
    for folder in (tmp_path, tmp_path / "no-run"):
        with raises(BundleError, str(folder)):
            Predictor(folder)
    monkeypatch.chdir(run.folder)
    assert Predictor(".").predict(NEW).equals(expected)


def test_a_bundle_in_the_middle_of_being_replaced_is_found(bundle, predictor, tmp_path):
    bundle.save(tmp_path / "bundle")
    (tmp_path / "bundle").rename(tmp_path / ".bundle.old")
    assert Predictor(tmp_path / "bundle").predict(NEW).equals(predictor.predict(NEW))


def test_dicts_are_rows(predictor):
    expected = predictor.predict(NEW)
    rows = NEW.rows(named=True)
    for several in (rows, tuple(rows)):
        assert predictor.predict(several).equals(expected)
        assert predictor.evaluate(several) == predictor.evaluate(NEW)
    assert predictor.predict(rows[0]).equals(predictor.predict(NEW.head(1)))
    assert predictor.evaluate(rows[0]) == predictor.evaluate(NEW.head(1))


def test_rows_may_lack_keys_and_mix_types(predictor):
    odd = [{"colour": "red", "size": 1.5}, {"shape": "disc", "size": "1.5", "colour": 7}]
    frame = pl.DataFrame({"colour": ["red", "7"], "shape": [None, "disc"], "size": ["1.5", "1.5"]})
    assert predictor.predict(odd).equals(predictor.predict(frame))
    with raises(SchemaError, "'shape'"):
        predictor.predict([{"colour": "red", "size": 1.5}] * 2)
    with raises(SchemaError, "'shape'"):
        predictor.predict({"colour": "red", "size": 1.5})
    for nothing in ([], {}, [1, 2]):
        with raises(TableError, type(nothing).__name__):
            predictor.predict(nothing)


def test_reading_settings_are_used(predictor, tmp_path):
    NEW.write_csv(tmp_path / "new.txt", separator="|")
    found = predictor.predict(tmp_path / "new.txt", config=DataConfig(format="csv", delimiter="|"))
    assert found.equals(predictor.predict(NEW))


def sparse_lines(n_rows: int, seed: int, dwell: object = None) -> list[str]:
    """libffm rows: a category, a category that is sometimes absent, a number, and the label first."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        page, place = int(rng.integers(0, 4)), int(rng.integers(10, 13))
        number = round(float(rng.normal()), 2) if dwell is None else dwell
        place_token = "" if rng.random() < 0.2 else f" 1:{place}:1"
        lines.append(f"{(page + place) % 2} 0:{page}:1{place_token} 2:20:{number}")
    return lines


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predictor, Path]:
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "train.libffm").write_text("\n".join(sparse_lines(300, 0)) + "\n")
    frame = read_table(folder / "train.libffm", DataConfig(target="good"))
    return Predictor(train(frame, data__numeric="scale")), folder


def test_libffm_with_and_without_labels(sparse):
    predictor, folder = sparse
    lines = sparse_lines(40, 1)
    (folder / "labelled.libffm").write_text("\n".join(lines) + "\n")
    (folder / "bare.libffm").write_text("\n".join(line.split(" ", 1)[1] for line in lines) + "\n")
    expected = predictor.predict(folder / "labelled.libffm")
    assert len(expected) == 40
    assert predictor.predict(folder / "bare.libffm").equals(expected)
    assert set(predictor.evaluate(folder / "labelled.libffm")) >= {"logloss", "auc"}
    with raises(TableError, "label"):
        predictor.evaluate(folder / "bare.libffm")


def test_libffm_that_lacks_a_field_or_holds_only_ones(sparse):
    predictor, folder = sparse
    (folder / "short.libffm").write_text("1 0:3:1 2:20:0.5\n0 0:1:1 2:20:-1\n")
    table = pl.DataFrame({"field_0": ["3", "1"], "field_1": [None, None], "field_2": [0.5, -1.0]})
    assert predictor.predict(folder / "short.libffm").equals(predictor.predict(table))
    # Without the schema a field of ones only would be taken for a category.
    (folder / "ones.libffm").write_text("1 0:3:1 1:10:1 2:20:1\n0 0:1:1 1:11:1 2:20:1\n")
    table = pl.DataFrame({"field_0": ["3", "1"], "field_1": ["10", "11"], "field_2": [1.0, 1.0]})
    assert predictor.predict(folder / "ones.libffm").equals(predictor.predict(table))


def test_libffm_indices_are_names_however_dense(tmp_path):
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 60, 300)  # as text these would look like a measure
    lines = [f"{i % 2} 0:{i}:1 1:{100 + i % 3}:1" for i in ids]
    (tmp_path / "train.libffm").write_text("\n".join(lines) + "\n")
    frame = read_table(tmp_path / "train.libffm", DataConfig(target="good"))
    predictor = Predictor(train(frame))
    assert [field.kind for field in predictor.bundle.encoder.schema.fields] == ["categorical"] * 2
    assert predictor.predict(tmp_path / "train.libffm").equals(predictor.predict(frame))


def test_libsvm_matrix_keeps_its_columns(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{rng.integers(2)} 1:{rng.normal():.2f} 3:{rng.normal():.2f} 7:{rng.normal():.2f}" for _ in range(200)]
    (tmp_path / "train.libsvm").write_text("\n".join(lines) + "\n")
    frame = read_table(tmp_path / "train.libsvm", DataConfig(target="good"))
    assert frame.columns == ["good", "x1", "x3", "x7"]
    predictor = Predictor(train(frame))
    (tmp_path / "new.libsvm").write_text("1 1:1 3:1\n0 1:1 3:1\n")
    expected = predictor.predict(pl.DataFrame({"x1": [1.0, 1.0], "x3": [1.0, 1.0], "x7": [0.0, 0.0]}))
    assert predictor.predict(tmp_path / "new.libsvm").equals(expected)


# --- metrics --------------------------------------------------------------------------------------------------


def test_binary_metrics_equal_scikit_learns(predictor):
    probabilities, labels = predictor.predict(NEW)["probability_1"].to_numpy().astype(float), NEW["good"].to_numpy()
    found = predictor.evaluate(NEW)
    assert found["logloss"] == pytest.approx(log_loss(labels, probabilities), abs=1e-6)
    # Ranked by logits: neighbours among them may share a rounded probability.
    logits = predictor.logits(predictor.bundle.encoder.encode(NEW)[0])[:, 0].numpy()
    assert found["auc"] == pytest.approx(roc_auc_score(labels, logits), abs=1e-9)
    assert found["loss"] == found["logloss"]


def test_weighted_metrics_equal_scikit_learns():
    frame = FRAME.with_columns(w=pl.int_range(300) % 4 + 1)
    predictor = Predictor(train(frame, data__weight="w"))
    new = NEW.with_columns(w=pl.int_range(100) % 3 + 1)
    probabilities, labels = predictor.predict(new)["probability_1"].to_numpy().astype(float), new["good"].to_numpy()
    found = predictor.evaluate(new)
    weight = new["w"].to_numpy()
    assert found["logloss"] == pytest.approx(log_loss(labels, probabilities, sample_weight=weight), abs=1e-6)
    logits = predictor.logits(predictor.bundle.encoder.encode(new)[0])[:, 0].numpy()
    assert found["auc"] == pytest.approx(roc_auc_score(labels, logits, sample_weight=weight), abs=1e-9)
    assert predictor.predict(new.drop("w")).equals(predictor.predict(new))
    with raises(SchemaError, "'w'"):
        predictor.evaluate(new.drop("w"))


def test_multiclass_metrics_equal_scikit_learns():
    frame, new = (
        f.with_columns(good=pl.col("colour")).with_columns(colour=pl.col("shape") + "?") for f in (FRAME, NEW)
    )
    predictor = Predictor(train(frame))
    predicted = predictor.predict(new)
    assert predicted.columns[1:] == ["probability_blue", "probability_green", "probability_red"]
    found = predictor.evaluate(new)
    assert found["logloss"] == pytest.approx(
        log_loss(new["good"].to_list(), numbers(predicted).astype(float)), abs=1e-5
    )
    assert found["accuracy"] == accuracy_score(new["good"].to_list(), predicted["prediction"].to_list())


def test_regression_metrics_equal_scikit_learns():
    frame, new = (f.with_columns(good=pl.col("good") * 50.0 + pl.col("size")) for f in (FRAME, NEW))
    predictor = Predictor(train(frame))
    predicted, target = predictor.predict(new), new["good"].to_numpy()
    assert predicted.columns == ["prediction"]
    found = predictor.evaluate(new)
    assert found["mse"] == pytest.approx(mean_squared_error(target, predicted["prediction"].to_numpy()), rel=1e-5)
    assert found["mae"] == pytest.approx(mean_absolute_error(target, predicted["prediction"].to_numpy()), rel=1e-5)


def test_one_class_has_no_auc(predictor):
    found = predictor.evaluate(NEW.filter(pl.col("good") == 1))
    assert "auc" not in found
    assert found["logloss"] > 0


def test_only_a_few_rows_in_memory_are_encoded_value_by_value(predictor, tmp_path, monkeypatch):
    """The index that this takes is not worth it for the last rows of a long table."""
    asked = []
    real = Encoder.encode

    def spy(self, table, *, row_by_row=False, **options):
        asked.append((len(table), row_by_row))
        return real(self, table, row_by_row=row_by_row, **options)

    monkeypatch.setattr(Encoder, "encode", spy)
    new = NEW.head(40)
    new.write_csv(tmp_path / "table.csv")
    new.head(5).write_csv(tmp_path / "short.csv")
    chunked = Predictor(predictor.bundle, chunk_rows=16)
    for source in (new, new.lazy(), tmp_path / "table.csv", tmp_path / "short.csv"):
        chunked.predict(source)
    assert asked == [(16, False), (16, False), (8, False)] * 3 + [(5, False)]
    asked.clear()
    few = [Predictor(predictor.bundle).predict(rows) for rows in (new.head(16), new.head(17))]
    assert asked == [(16, True), (17, False)]
    np.testing.assert_allclose(numbers(few[0]), numbers(few[1].head(16)), atol=1e-6)


# --- how a file is read ---------------------------------------------------------------------------------------


def test_a_file_is_read_as_the_training_table_was(tmp_path):
    french = FRAME.with_columns(colour=pl.lit("é") + pl.col("colour"), extra=pl.lit("x"))
    settings = {"data__fields": ["colour", "shape", "size"], "data__weight": None}
    fitted = train(french, data__encoding="latin-1", data__delimiter="~", **settings)
    path = tmp_path / "new.csv"
    path.write_bytes(french.select("size", "colour", "shape").write_csv(separator="~").encode("latin-1"))
    predictor = Predictor(fitted)
    assert predictor.predict(path).equals(predictor.predict(french))
    with raises(TableError, "UTF-8"):
        predictor.predict(path, config=DataConfig(delimiter="~"))
    french.drop("good").write_parquet(tmp_path / "new.parquet")
    assert predictor.predict(tmp_path / "new.parquet").equals(predictor.predict(french))


# --- one row --------------------------------------------------------------------------------------------------


def rich_frame(n_rows: int = 300) -> pl.DataFrame:
    """Fields of all kinds: text, whole numbers and dates as categories; numbers scaled, in bins, and as counts."""
    rng = np.random.default_rng(3)
    days = [datetime.date(2024, 1, 1 + int(day)) for day in rng.integers(0, 5, n_rows)]
    return small_frame(n_rows).with_columns(
        code=rng.integers(0, 6, n_rows),
        day=pl.Series(days),
        open=pl.Series(rng.random(n_rows) < 0.5),
        clicks=rng.integers(0, 200, n_rows),
        weight=pl.when(pl.int_range(n_rows) % 9 > 0).then(pl.Series(rng.normal(size=n_rows))),
    )


KINDS = {"code": "categorical", "size": "numerical", "clicks": "numerical", "weight": "numerical"}
WAYS = {"size": "scale", "clicks": "quantile", "weight": "quantile"}


@pytest.fixture(scope="module")
def rich_predictors() -> dict[str, Predictor]:
    """One predictor for each task, one with counts in the paper's bins, and one that refuses unknown values."""
    frame = rich_frame()
    settings = {"data__kinds": KINDS, "data__numeric": WAYS, "data__missing_values": ["", "-999"]}
    return {
        "binary": Predictor(train(frame, **settings)),
        "multiclass": Predictor(train(frame.with_columns(good=pl.col("shape")), **settings)),
        "regression": Predictor(train(frame.with_columns(good=pl.col("good") * 50.0 + pl.col("size")), **settings)),
        "counts": Predictor(train(frame, **{**settings, "data__numeric": {**WAYS, "clicks": "log2"}})),
        "strict": Predictor(train(frame, **settings, data__handle_unknown="error")),
    }


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 210),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.floats(-3, 3).map(np.float64),
    st.text(max_size=4),
    st.floats(-9, 9).map(lambda number: f" {number:.2f}"),
    st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 9)),
    st.datetimes(datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 9)),
    st.sampled_from(
        ["red", "disc", "3", "3.0", "0", "1.0", "True", "FALSE", "", "NA", "nan", "-999", -999, "2024-01-03", "1e400"]
    ),
    st.sampled_from(["2024-01-03 00:00:00", "1_000", "+.5", b"x", [1], np.int8(3), np.float32(0.1), Decimal("3.0")]),
)
plain_frame = rich_frame().drop("good").with_columns(pl.col("day").cast(pl.String))
ordinary = {column.name: st.sampled_from(column.to_list()) for column in plain_frame}
rows = st.one_of(
    st.fixed_dictionaries(ordinary),
    # A few odd values among ordinary ones, or odd values only.
    st.builds(
        lambda row, odd: row | odd,
        st.fixed_dictionaries(ordinary),
        st.dictionaries(st.sampled_from(sorted(ordinary)), odd_values, max_size=2),
    ),
    st.fixed_dictionaries(dict.fromkeys(ordinary, odd_values)),
)


def outcome(predict: Callable[[], dict[str, Any]]) -> object:
    """What a call returns, to the last bit, or how it fails."""
    try:
        return repr(predict())
    except UserError as error:
        return type(error), str(error)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "counts", "strict"])
@settings(deadline=None, max_examples=60)
@given(rows, st.sets(st.sampled_from(sorted(ordinary)), max_size=1), odd_values)
def test_one_row_is_predicted_as_in_a_frame(rich_predictors, task, row, absent, extra):
    predictor = rich_predictors[task]
    row = {name: value for name, value in row.items() if name not in absent} | {"extra": extra}
    frame = pl.DataFrame({name: [value] for name, value in row.items()})
    expected = outcome(lambda: predictor.predict(frame).row(0, named=True))
    assert outcome(lambda: predictor.predict_row(row)) == expected


def test_a_row_of_plain_values_needs_no_frame(bundle, monkeypatch):
    predictor = Predictor(bundle)
    expected = predictor.predict(NEW.head(5)).rows(named=True)
    monkeypatch.setattr(Predictor, "predict", None)
    for row, prediction in zip(NEW.head(5).rows(named=True), expected, strict=True):
        found = predictor.predict_row(row)
        assert list(found) == list(prediction)
        assert found == pytest.approx(prediction, abs=1e-6)


def test_a_row_that_lacks_fields_is_refused(predictor):
    with raises(SchemaError, "'colour'", "'shape'"):
        predictor.predict_row({"size": 1.0, "Colour": "red"})

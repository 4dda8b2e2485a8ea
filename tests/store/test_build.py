"""A table encoded in chunks must give what the encoding in memory gives."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.config.settings import Config
from fielddep.encoding import interning
from fielddep.encoding.coded import Sizes
from fielddep.encoding.interning import code_table
from fielddep.encoding.split import plan_split
from fielddep.store.build import build_store
from fielddep.store.store import Store, is_store
from fielddep.tables.row_stream import read_table
from fielddep.training.prepare import prepare
from tests.helpers import raises, states
from tests.observers import StageWatch
from tests.oracle.encoder import learn_rows
from tests.streamed import SMALL_SIZES, assert_as_oracle, assert_same_encoder, mixed_frame, small_chunks

__all__ = ["small_chunks"]
pytestmark = pytest.mark.usefixtures("small_chunks")

BASE = {"data.target": "good", "data.weight": "weight", "data.exclude": ["grade", "amount"]}
VARIANTS: dict[str, dict[str, object]] = {
    "defaults": {},
    "scaled": {"data.numeric": "scale"},
    "log2": {"data.numeric": {"*": "log2", "price": "scale"}, "data.kinds": {"height": "categorical"}},
    "min-count": {"data.min_count": {"*": 2, "word": 6}, "data.handle_unknown": "error"},
    "counts-from-all": {"data.min_count": 3, "data.counts_from": "all"},
    "missing-values": {"data.missing_values": ["", "w0", "100", "0.01"], "data.numeric": {"price": "scale"}},
    "crosses": {"data.crosses": [["shape", "colour"], ["word", "height"]], "data.cross_min_count": 3},
    "no-crosses": {"data.crosses": "none", "data.n_bins": 5},
    "multiclass": {"data.target": "grade", "data.exclude": ["good", "amount"]},
    "regression": {"data.target": "amount", "data.exclude": ["good", "grade"]},
    "listed-fields": {"data.fields": ["row", "colour", "constant", "price"], "data.kinds": {"price": "numerical"}},
    "no-weight": {"data.weight": None, "data.exclude": ["weight", "grade", "amount"]},
}


def config_of(**settings: object) -> Config:
    return Config().replace({**BASE, **settings})


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_equals_the_encoding_in_memory(tmp_path: Path, ending: str, variant: str) -> None:
    config = config_of(**VARIANTS[variant])
    path = tmp_path / f"table.{ending}"
    table = mixed_frame()
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    store = build_store(path, config, tmp_path / "store")
    assert store.config.data == config.data
    assert store.config.split == config.split
    assert_as_oracle(store, read_table(path, config.data))
    assert Store.open(tmp_path / "store", check=True).n_rows == len(table)
    assert sorted(p.name for p in (tmp_path / "store").iterdir() if not p.name.startswith("shard-")) == [
        "evidence.safetensors",
        "manifest.json",
        "schema.json",
        "vocabulary.arrow",
    ]


@pytest.mark.parametrize("weight", [None, "weight"])
def test_few_rows_are_not_kept_as_evidence(tmp_path: Path, weight: str | None) -> None:
    config = config_of(**{"data.weight": weight, "data.exclude": ["weight", "grade", "amount"]})
    everything = build_store(mixed_frame(), config).encoder.evidence
    config = config.replace({"data.evidence_min_rows": 6})
    in_memory, on_disk = build_store(mixed_frame(), config), build_store(mixed_frame(), config, tmp_path / "store")
    evidence = in_memory.encoder.evidence
    assert evidence is not None and everything is not None
    assert min(cells.n_G.min() for cells in everything.cells) < 1.5  # a weight may be less than one row
    assert min(cells.n_G.min() for cells in evidence.cells if len(cells)) >= 6
    assert in_memory.encoder.digest == on_disk.encoder.digest
    for start in range(0, in_memory.n_rows, 500):
        stop = min(start + 500, in_memory.n_rows)
        one, other = in_memory.read(start, stop).evidence_RE, on_disk.read(start, stop).evidence_RE
        np.testing.assert_array_equal(one, other)
        last = one.reshape(stop - start, -1, evidence.width)[:, :, -1]  # log(1 + rows)
        assert not ((last > 0) & (last < np.float16(np.log(7)))).any()


@pytest.mark.parametrize("weight", [None, "weight"])
def test_evidence_within_a_budget_is_the_same_on_disk(tmp_path: Path, weight: str | None) -> None:
    config = config_of(**{"data.weight": weight, "data.exclude": ["weight", "grade", "amount"]})
    everything = build_store(mixed_frame(), config).encoder.evidence
    assert everything is not None
    config = config.replace({"data.evidence_max_cells": everything.n_cells - 1})
    in_memory, on_disk = build_store(mixed_frame(), config), build_store(mixed_frame(), config, tmp_path / "store")
    evidence, saved = in_memory.encoder.evidence, on_disk.encoder.evidence
    assert evidence is not None and saved is not None
    assert evidence.combinations == everything.combinations[: len(evidence.cells)]
    assert 0 < len(evidence.cells) < len(everything.cells)
    for name, array in evidence.arrays().items():
        assert array.dtype == saved.arrays()[name].dtype
        np.testing.assert_array_equal(array, saved.arrays()[name])
    one, other = (store.read(0, store.n_rows).evidence_RE for store in (in_memory, on_disk))
    assert one.shape[1] == len(evidence.cells) * evidence.width
    np.testing.assert_array_equal(one, other)


def test_a_cross_is_found_as_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 4, 6000), rng.integers(0, 4, 6000)
    table = pl.DataFrame({"a": a, "b": b, "c": rng.integers(0, 9, 6000), "good": (a + b) % 2})
    store = build_store(table, Config().replace({"data.target": "good"}), tmp_path / "store")
    assert store.layout.crosses == ((0, 1),)
    assert_as_oracle(store, table)


def test_a_sample_of_rows_finds_the_same_crosses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fielddep.encoding.crosses.MAX_SEARCH_ROWS", 2000)
    monkeypatch.setattr("fielddep.encoding.crosses.MIN_SEARCH_ROWS", 2000)
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 4, 6000), rng.integers(0, 4, 6000)
    table = pl.DataFrame({"a": a, "b": b, "c": rng.integers(0, 9, 6000), "good": (a + b) % 2})
    store = build_store(table, Config().replace({"data.target": "good"}), tmp_path / "store")
    assert store.layout.crosses == ((0, 1),)
    assert_as_oracle(store, table)


def test_typed_columns_of_parquet(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n_rows = 700
    table = pl.DataFrame(
        {
            "flag": pl.Series(rng.random(n_rows) < 0.5).set(pl.Series(rng.random(n_rows) < 0.1), None),
            "day": pl.Series(rng.integers(18000, 18030, n_rows)).cast(pl.Int32).cast(pl.Date),
            "at": pl.Series(rng.integers(0, 20, n_rows) * 3_600_000_001).cast(pl.Datetime("us")),
            "small": rng.integers(-3, 3, n_rows).astype(np.int8),
            "large": rng.integers(0, 5, n_rows).astype(np.uint64) + 2**63,
            "half": pl.Series(rng.integers(0, 40, n_rows) / 3).cast(pl.Float32),
            "kind": pl.Series(rng.choice(["a", "b"], n_rows)).cast(pl.Categorical),
            "enum": pl.Series(rng.choice(["a", "b"], n_rows)).cast(pl.Enum(["b", "a"])),
            "cents": pl.Series(rng.integers(0, 50, n_rows)).cast(pl.Decimal(10, 2)) / 4,
            "empty": pl.Series([None] * n_rows),
            "nan": pl.Series(rng.choice([0.25, np.nan, 1.5, -0.0, 0.0], n_rows)),
            "good": rng.random(n_rows) < 0.4,
        }
    )
    path = tmp_path / "table.parquet"
    table.write_parquet(path)
    store = build_store(path, Config().replace({"data.target": "good"}), tmp_path / "store")
    assert_as_oracle(store, read_table(path))
    assert [name for name, _ in store.encoder.schema.skipped] == ["empty"]


@pytest.mark.parametrize("text", ["libffm", "libsvm"])
def test_sparse_text(tmp_path: Path, text: str) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(800):
        a, b, y = rng.integers(0, 6), rng.integers(0, 9), rng.integers(0, 2)
        tokens = f"0:{a}:1 1:{10 + b}:1 2:99:{rng.random():.3f}" if text == "libffm" else f"{a}:1 {10 + b}:1"
        lines.append(f"{y} {tokens}\n")
    path = tmp_path / f"table.{text}"
    path.write_text("".join(lines))
    config = Config().replace({"data.target": "label"})
    store = build_store(path, config, tmp_path / "store")
    assert_as_oracle(store, read_table(path, config.data))


def test_many_files_are_one_table(tmp_path: Path) -> None:
    table, config = mixed_frame(1000), config_of()
    parts = [table[:300], table[300:301], table[301:]]
    for i, part in enumerate(parts):
        part.write_csv(tmp_path / f"part-{i}.csv")
        part.select(part.columns[::-1] if i else part.columns).write_csv(tmp_path / f"turned-{i}.csv")
        part.write_parquet(tmp_path / f"part-{i}.parquet")
    (tmp_path / "folder").mkdir()
    for i, part in enumerate(parts):
        part.write_parquet(tmp_path / "folder" / f"{i}.parquet")
    whole = table.write_csv().encode()
    (tmp_path / "whole.csv.gz").write_bytes(gzip.compress(whole))
    sources = [
        str(tmp_path / "part-*.csv"),
        [str(tmp_path / f"part-{i}.csv") for i in range(3)],
        [str(tmp_path / f"turned-{i}.csv") for i in range(3)],
        tmp_path / "whole.csv.gz",
    ]
    stores = [build_store(source, config, tmp_path / f"s{i}") for i, source in enumerate(sources)]
    for store in stores[1:]:
        assert_same_encoder(store.encoder, stores[0].encoder)
        assert np.array_equal(store.read(0, 1000).ids_RF, stores[0].read(0, 1000).ids_RF)
    assert [Path(source["name"]).name for source in stores[0].sources] == ["part-0.csv", "part-1.csv", "part-2.csv"]
    assert stores[0].sources[1]["size"] == (tmp_path / "part-1.csv").stat().st_size
    typed = [build_store(s, config, tmp_path / f"t{i}") for i, s in enumerate((table, tmp_path / "folder"))]
    assert np.array_equal(typed[0].read(0, 1000).ids_RF, typed[1].read(0, 1000).ids_RF)
    assert typed[0].sources == ()


@pytest.mark.parametrize(
    "text",
    [
        'a,b,good\n"x, y",1,0\nz,2,1\n\nz,1,0\n"x ""q"" y",2,1\nx,2,0\n' + "x,1,1\nz,2,0\n" * 400,
        "a,b,good\n" + "x,1,0\ny,2,1\n" * 400 + 'x,1,0\ny "quoted" here,2,1\nx,2,1\ny,1,0\n' + "y,1,1\n" * 30,
        "\ufeffa;b;good\r\n" + "x;1;0\r\ny;2;1\r\nx;2;1\r\n" * 300 + "y;1;0",
        'a,b,good\n"line\nbreak",1,0\ny,2,1\nx,2,1\n' + 'x,1,0\n"y",2,1\n' * 400 + "\n\n",
        "\ufeffa,b,good\n\nx,1,0\ny,2,1\nx,2,1\n" + 'x,1,0\n"y",2,1\n' * 400,
    ],
)
def test_odd_delimited_text_is_read_as_in_memory(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    config = Config().replace({"data.target": "good", "data.crosses": "none"})
    store = build_store(path, config, tmp_path / "store")
    assert_as_oracle(store, read_table(path, config.data))


def test_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    rows = "".join(f"{'é' if i % 3 else 'ü'},{i % 4},{i % 2}\n" for i in range(300))
    path.write_bytes(("a,b,good\n" + rows).encode("latin-1"))
    config = Config().replace({"data.target": "good", "data.encoding": "latin-1"})
    store = build_store(path, config, tmp_path / "store")
    assert sorted(store.encoder.values("a").to_list()[2:]) == ["é", "ü"]
    assert_as_oracle(store, read_table(path, config.data))


# --- columns with very many values ----------------------------------------------------------------------------


FEW_DISTINCT = replace(SMALL_SIZES, max_distinct=100, judged_rows=80)


@pytest.mark.parametrize("variant", ["defaults", "scaled", "log2", "regression", "counts-from-all", "min-count"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_measures_kept_as_numbers_equal_the_encoding_in_memory(tmp_path: Path, ending: str, variant: str) -> None:
    """The sample holds all rows here, so that even bins are exact."""
    config = config_of(**VARIANTS[variant])
    path, table = tmp_path / f"table.{ending}", mixed_frame()
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    store = build_store(path, config, tmp_path / "store", sizes=FEW_DISTINCT)
    assert_as_oracle(store, read_table(path, config.data))


def test_bins_of_a_sample_have_about_equal_mass(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {"x": rng.normal(size=4000), "y": rng.choice(["a", "b"], 4000), "good": rng.integers(0, 2, 4000)}
    )
    config = Config().replace({"data.target": "good", "data.n_bins": 8})
    store = build_store(table, config, tmp_path / "store", sizes=replace(FEW_DISTINCT, sample_rows=1000))
    counts = store.encoder.field_encoders[0].counts
    assert counts.sum() == store.n_rows_of["train"] == 3200
    assert len(counts) == 2 + 8
    assert counts[2:].min() > 300
    assert counts[2:].max() < 500
    in_bins = np.bincount(store.read(0, 4000).ids_RF[:, 0][store.parts(0, 4000) == 0], minlength=10)
    assert in_bins.tolist() == counts.tolist()


def test_text_after_many_numbers_is_refused_with_its_row(tmp_path: Path) -> None:
    table = mixed_frame().with_columns(pl.col("price").cast(pl.String))
    table[1200, "price"] = "dear"
    with raises(ValueError, "column 'price'", "numbers", "row 1200", "'dear'"):
        build_store(table, config_of(), tmp_path / "store", sizes=FEW_DISTINCT)
    as_text = config_of(**{"data.kinds": {"price": "categorical"}})
    build_store(table, as_text, tmp_path / "store", force=True, sizes=FEW_DISTINCT)


def test_a_column_that_names_every_row_is_left_out_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    early = replace(SMALL_SIZES, judged_rows=300)
    table = mixed_frame().with_columns(pl.Series("key", [f"k{i}" for i in range(1500)]), late=pl.col("price"))
    table[1400, "key"] = "k3"  # not seen any more: the column is judged by the rows before
    taken: list[int] = []
    real = interning.Dictionary.codes

    def spy(self: interning.Dictionary, texts: pl.Series) -> object:
        codes = real(self, texts)
        if texts.name == "key":
            taken.append(self.n_values)
        return codes

    monkeypatch.setattr(interning.Dictionary, "codes", spy)
    store = build_store(table, config_of(), tmp_path / "store", sizes=early)
    assert [name for name, _ in store.encoder.schema.skipped] == ["constant", "row", "key"]
    assert max(taken) == 384  # three chunks of 128 rows
    assert states(caplog.text, "'key'", "one value per row")
    listed = config_of(**{"data.fields": ["key", "colour", "shape"]})
    kept = build_store(table, listed, tmp_path / "store", force=True, sizes=early)
    assert kept.encoder.schema.field_names == ("key", "colour", "shape")
    assert_as_oracle(kept, table)


# --- splits ---------------------------------------------------------------------------------------------------


def parts_in_memory(table: pl.DataFrame, config: Config) -> np.ndarray:
    """In one chunk, and every column as codes."""
    coded = code_table(table, config)
    return plan_split(coded, config.split, config.data.target).parts_of(coded, 0, len(table))


def timed_frame() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    seconds = pl.Series(rng.integers(0, 4000, 1500) * 1_000_000).cast(pl.Datetime("us"))
    part = rng.choice(["Train", " valid", "TEST"], 1500, p=[0.7, 0.2, 0.1])
    return mixed_frame().with_columns(
        at=seconds,
        stamp=seconds.dt.strftime("%Y-%m-%dT%H:%M:%S"),
        part=pl.Series(part),
        trained=pl.Series(np.where(part == "TEST", "test", "train")),
    )


@pytest.mark.parametrize("column", ["at", "stamp", "height", "shape"])
@pytest.mark.parametrize("kept_as", ["codes", "numbers"])
def test_split_by_time_equals_memory(tmp_path: Path, column: str, kept_as: str) -> None:
    sizes = FEW_DISTINCT if kept_as == "numbers" and column != "shape" else SMALL_SIZES
    table = timed_frame()
    exclude = ["grade", "amount", "trained", "part", *({"at", "stamp"} - {column})]
    config = config_of(**{"split.method": "time", "split.column": column, "data.exclude": exclude})
    store = build_store(table, config, tmp_path / "store", sizes=sizes)
    assert store.parts(0, 1500).tolist() == parts_in_memory(table, config).tolist()
    assert store.n_rows_of["test"] > 0
    assert_as_oracle(store, table)


def test_split_by_one_time_only(tmp_path: Path) -> None:
    table = mixed_frame()
    config = config_of(**{"split.method": "time", "split.column": "constant"})
    with raises(ValueError, "numbers, dates or ISO times"):
        build_store(table, config, tmp_path / "store")
    table = table.with_columns(constant=pl.lit(7))
    store = build_store(table, config, tmp_path / "store")
    assert store.parts(0, 1500).tolist() == parts_in_memory(table, config).tolist()


@pytest.mark.parametrize("column", ["part", "trained"])
def test_split_by_column(tmp_path: Path, column: str) -> None:
    table = timed_frame()
    exclude = ["grade", "amount", "at", "stamp", *({"part", "trained"} - {column})]
    config = config_of(**{"split.method": "column", "split.column": column, "data.exclude": exclude})
    store = build_store(table, config, tmp_path / "store")
    assert store.parts(0, 1500).tolist() == parts_in_memory(table, config).tolist()
    assert_as_oracle(store, table)


def test_split_by_group_equals_memory(tmp_path: Path) -> None:
    table = mixed_frame()
    config = config_of(**{"split.method": "group", "split.column": "word"})
    store = build_store(table, config, tmp_path / "store")
    assert store.parts(0, 1500).tolist() == parts_in_memory(table, config).tolist()
    assert_as_oracle(store, table)


@pytest.mark.parametrize("method", ["random", "stratified"])
@pytest.mark.parametrize("target", ["grade", "amount"])
@pytest.mark.parametrize("sizes", [SMALL_SIZES, FEW_DISTINCT], ids=["codes", "numbers"])
def test_drawn_splits_equal_memory(tmp_path: Path, method: str, target: str, sizes: Sizes) -> None:
    table = mixed_frame()
    exclude = list({"good", "grade", "amount"} - {target})
    settings = {"split.method": method, "data.target": target, "data.exclude": exclude, "split.test": 0.17}
    config = config_of(**settings)
    store = build_store(table, config, tmp_path / "store", sizes=sizes)
    parts = store.parts(0, 1500)
    assert parts.tolist() == parts_in_memory(table, config).tolist()
    assert store.n_rows_of == dict(zip(("train", "validation", "test"), np.bincount(parts).tolist(), strict=True))
    if method == "stratified" and target == "grade":
        for label in ("a", "b", "c"):
            of_class = parts[(table["grade"] == label).to_numpy()]
            assert abs((of_class == 2).sum() - 0.17 * len(of_class)) <= 1
            assert abs((of_class == 1).sum() - 0.1 * len(of_class)) <= 1
    other = build_store(table, config_of(**settings, **{"split.seed": 1}), tmp_path / "other")
    again = build_store(table, config, tmp_path / "again")
    assert (parts != other.parts(0, 1500)).any()
    assert (parts == again.parts(0, 1500)).all()


def test_parts_do_not_depend_on_the_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mixed_frame()
    first = build_store(table, config_of(), tmp_path / "a")
    monkeypatch.setattr("fielddep.tables.row_stream.CHUNK_ROWS", 37)
    second = build_store(table, config_of(), tmp_path / "b", sizes=replace(SMALL_SIZES, chunk_rows=256))
    assert (first.parts(0, 1500) == second.parts(0, 1500)).all()
    assert np.array_equal(first.read(0, 1500).ids_RF, second.read(0, 1500).ids_RF)


def test_absent_classes_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = mixed_frame().with_columns(
        part=pl.when(pl.col("grade") == "a").then(pl.lit("train")).otherwise(pl.lit("test"))
    )
    table[3, "part"] = "validation"
    extra = table.filter(pl.col("grade") == "b").head(5).with_columns(part=pl.lit("train"))
    table = pl.concat([table, extra])
    exclude = ["good", "amount"]
    settings = {"data.target": "grade", "data.exclude": exclude, "split.method": "column", "split.column": "part"}
    build_store(table, config_of(**settings), tmp_path / "store")
    warned = [line for line in caplog.messages if "no row of class" in line]
    assert len(warned) == 3
    for line, facts in zip(warned, (("train", "'c'"), ("validation", "'b', 'c'"), ("test", "'a'")), strict=True):
        assert all(fact in line for fact in (*facts, "'grade'"))
    assert prepare(table, config_of(**settings)).store.warnings == tuple(warned)


# --- progress -------------------------------------------------------------------------------------------------


def test_progress_is_told(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    mixed_frame().write_csv(path)
    watch = StageWatch()
    build_store(path, config_of(), tmp_path / "store", observer=watch)
    assert list(dict.fromkeys(stage for stage, _, _ in watch.seen)) == ["read", "split", "learn", "count", "encode"]
    reads = watch.rows("read")
    assert len(reads) > 5
    assert reads == sorted(reads)
    assert reads[-1] == 1500
    assert watch.seen[len(reads) - 1][2] == pytest.approx(1)
    assert watch.seen[-1] == ("encode", 1500, 1.0)
    assert is_store(tmp_path / "store")


def test_in_memory_helper_can_fail(tmp_path: Path) -> None:
    """The comparison notices a single id."""
    table = mixed_frame()
    store = build_store(table, config_of(), tmp_path / "store")
    _, rows = learn_rows(table, store.config, store.parts(0, 1500))
    rows.ids_RF[7, 0] += 1
    assert not np.array_equal(store.read(0, 1500).ids_RF, rows.ids_RF)

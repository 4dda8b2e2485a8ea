"""Generated raw files: the exact format of the published ones, bounded memory, and clicks that can be learned."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.datasets import avazu, criteo, find_recipe, kdd2012
from fielddep.errors import ConfigError
from tests.helpers import raises

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "size"))
from clicks import CHUNK_ROWS
from raw_columns import CRITEO_CATEGORIES, CRITEO_COUNTS, KDD2012_COLUMNS
from raw_sample import RAW_FORMATS, write_raw_sample

NUMBER, HASH = r"\d+", r"[0-9a-f]{8}"
LINES = {
    "avazu": rf"\d{{15,20}},[01],1410[23]\d\d\d,{NUMBER},{NUMBER}(,{HASH}){{9}}(,{NUMBER}){{10}}",
    "criteo": rf"[01](\t(-?{NUMBER})?){{13}}(\t({HASH})?){{26}}",
    "kdd2012": rf"{NUMBER}\t[1-9]\d*\t\d{{15,20}}(\t{NUMBER}){{9}}",
}


def read(path: Path, columns: tuple[str, ...], *, header: bool = False) -> pl.DataFrame:
    separator = "," if header else "\t"
    return pl.read_csv(path, separator=separator, has_header=header, new_columns=list(columns), infer_schema=False)


@pytest.mark.parametrize("name", RAW_FORMATS)
def test_format(name: str, tmp_path: Path) -> None:
    path = write_raw_sample(name, tmp_path / name, 500)
    assert path.name == find_recipe(name).versions[0][0].name
    lines = path.read_text().splitlines()
    if name == "avazu":
        assert lines.pop(0) == ",".join(avazu.COLUMNS)
    assert len(lines) == 500
    assert [line for line in lines if not re.fullmatch(LINES[name], line)] == []
    assert write_raw_sample(name, tmp_path / "again", 500).read_bytes() == path.read_bytes()
    assert write_raw_sample(name, tmp_path / "other", 500, seed=1).read_bytes() != path.read_bytes()


def test_columns_are_those_of_the_recipes() -> None:
    assert tuple(column.name for column in (*CRITEO_COUNTS, *CRITEO_CATEGORIES)) == criteo.FIELDS
    assert tuple(column.name for column in KDD2012_COLUMNS) == kdd2012.FIELDS[1:]


def test_criteo_is_skewed_and_has_empty_cells(tmp_path: Path) -> None:
    table = read(write_raw_sample("criteo", tmp_path, 20_000), (criteo.TARGET, *criteo.FIELDS))
    assert table["C22"].null_count() / 20_000 == pytest.approx(0.76, abs=0.02)
    assert table["I12"].null_count() / 20_000 == pytest.approx(0.77, abs=0.02)
    assert table["C3"].n_unique() > 5_000
    assert table["C3"].drop_nulls().value_counts()["count"].max() > 400
    assert table["I2"].cast(pl.Int64).min() == -2
    assert 0.15 < table[criteo.TARGET].cast(pl.Int8).mean() < 0.35  # type: ignore[operator]  # wide union in polars


def test_kdd2012_clicks_are_counted(tmp_path: Path) -> None:
    table = read(write_raw_sample("kdd2012", tmp_path, CHUNK_ROWS + 5), (kdd2012.CLICKS, *kdd2012.FIELDS))
    clicks, impressions = (table[name].cast(pl.Int64).to_numpy() for name in (kdd2012.CLICKS, "impression"))
    assert len(table) == CHUNK_ROWS + 5
    assert (clicks <= impressions).all()
    assert clicks.max() > 1
    assert 0.03 < np.mean(clicks > 0) < 0.06


def test_clicks_depend_on_values(tmp_path: Path) -> None:
    table = read(write_raw_sample("criteo", tmp_path, 60_000), (criteo.TARGET, *criteo.FIELDS))
    rates = table.group_by("C14").agg(pl.col(criteo.TARGET).cast(pl.Float64).mean().alias("rate"), pl.len())
    rates = rates.filter(pl.col("len") > 1_000)["rate"]
    assert len(rates) > 10
    assert rates.max() - rates.min() > 0.1  # type: ignore[operator]  # wide union in polars


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with raises(ConfigError, "avazu", "criteo", "kdd2012", "'frappe'"):
        write_raw_sample("frappe", tmp_path, 10)
    with raises(ConfigError, "0 rows"):
        write_raw_sample("criteo", tmp_path, 0)

"""One pipeline: `fit TABLE` and `encode TABLE` with `fit STORE` end with the same bundle, byte for byte.

What this does not catch: differences between machines, and between numbers of threads.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.store.build import build_store
from fielddep.training.fit import fit
from tests.store.test_build import BASE, VARIANTS
from tests.streamed import SMALL_SIZES, mixed_frame, small_chunks

__all__ = ["small_chunks"]
pytestmark = pytest.mark.usefixtures("small_chunks")

QUICK = {
    "model.d_embed": 4,
    "model.hidden": [8],
    "train.max_epochs": 2,
    "train.eval_every": 1,
    "train.batch_size": 64,
    "train.threads": 1,
}
SPLITS: dict[str, dict[str, object]] = {
    "random": {"split.method": "random", "split.seed": 3},
    "group": {"split.method": "group", "split.column": "word"},
    "time": {"split.method": "time", "split.column": "visits"},
    "few-validation-rows": {"split.validation": 0.01, "split.test": 0.0},
}
CASES = {**VARIANTS, **{f"split-{name}": settings for name, settings in SPLITS.items()}}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def saved(source: object, config: Config, folder: Path) -> dict[str, bytes]:
    trained = fit(source, config)  # type: ignore[arg-type]  # tables of every kind
    Bundle.of(trained).save(folder)
    return content(folder)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("case", CASES)
def test_a_table_and_its_store_give_the_same_bundle(tmp_path: Path, case: str, ending: str) -> None:
    config = Config().replace({**BASE, **CASES[case], **QUICK})
    table, path = mixed_frame(900), tmp_path / f"table.{ending}"
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    store = build_store(path, config, tmp_path / "store")
    memory = build_store(path, config)
    assert memory.encoder.digest == store.encoder.digest
    assert memory.parts(0, 900).tolist() == store.parts(0, 900).tolist()
    assert memory.n_rows_of == store.n_rows_of
    assert memory.warnings == store.warnings
    expected = saved(store, config, tmp_path / "from-store")
    assert saved(memory, config, tmp_path / "from-memory") == expected
    assert saved(str(path), config, tmp_path / "from-file") == expected
    if ending == "parquet":
        assert saved(table, config, tmp_path / "from-frame") == expected


def test_columns_judged_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures kept as numbers and columns that are skipped, whatever the chunks of the reader."""
    from dataclasses import replace

    sizes = replace(SMALL_SIZES, max_distinct=100, judged_rows=80)
    config = Config().replace({**BASE, "data.numeric": {"height": "scale"}, **QUICK})
    table, path = mixed_frame(900), tmp_path / "table.parquet"
    table.write_parquet(path)
    stores = [build_store(path, config, tmp_path / "a", sizes=sizes), build_store(table, config, sizes=sizes)]
    monkeypatch.setattr("fielddep.tables.row_stream.CHUNK_ROWS", 37)
    stores += [build_store(path, config, tmp_path / "b", sizes=sizes), build_store(table, config, sizes=sizes)]
    assert len({store.encoder.digest for store in stores}) == 1
    bundles = [saved(store, config, tmp_path / f"bundle-{i}") for i, store in enumerate(stores)]
    assert all(bundle == bundles[0] for bundle in bundles)
    as_codes = build_store(table, config, sizes=SMALL_SIZES)
    assert as_codes.encoder.digest != stores[0].encoder.digest or as_codes.encoder.schema == stores[0].encoder.schema


def test_commands_end_with_the_same_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.csv"
    mixed_frame(900).drop("grade", "amount", "weight").write_csv(path)
    words = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    assert main(["fit", str(path), "--target", "good", "--out", str(tmp_path / "run"), *words]) == 0
    assert main(["encode", str(path), "--target", "good", "--out", str(tmp_path / "store")]) == 0
    assert main(["fit", str(tmp_path / "store"), "--out", str(tmp_path / "stored"), *words]) == 0
    assert content(tmp_path / "run" / "bundle") == content(tmp_path / "stored" / "bundle")
    assert pl.read_csv(path).height == 900
    capsys.readouterr()

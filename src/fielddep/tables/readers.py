"""Sources: the files that a path stands for and their format, or a table in memory. `row_stream` reads them."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from fielddep.config.data import DataConfig
from fielddep.errors import ConfigError, TableError
from fielddep.tables.delimited import find_delimiter, refuse_duplicates
from fielddep.tables.sparse_text import read_libffm, read_libsvm
from fielddep.tables.text import READ_ERRORS, read_start

Source: TypeAlias = Any
"""A path, a list of paths, a glob, a folder, or a table in memory; see `row_stream.read_table`."""

SUPPORTED = (
    "supported are files (CSV, TSV, JSON lines, Parquet, Arrow IPC or Feather, libffm, libsvm; text also .gz, .zst "
    "or .zip), lists, globs and folders of such files, pandas and Polars frames, pyarrow tables, 2-D numpy arrays and "
    "dicts of columns"
)
_FORMATS = {
    "csv": "csv",
    "tsv": "tsv",
    "tab": "tsv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "pq": "parquet",
    "ipc": "ipc",
    "arrow": "ipc",
    "feather": "ipc",
    "libffm": "libffm",
    "ffm": "libffm",
    "libsvm": "libsvm",
    "svm": "libsvm",
    "libfm": "libsvm",
}
_PACKED = {".gz", ".zst", ".zip"}
_NUMBER = r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"
_LIBFFM_LINE = re.compile(rf"(\S+\s+)?\d+:\d+:{_NUMBER}(\s+\d+:\d+:{_NUMBER})*\s*")
_LIBSVM_LINE = re.compile(rf"(\S+\s+)?\d+:{_NUMBER}(\s+\d+:{_NUMBER})*\s*")


def read_memory(source: Source) -> pl.DataFrame:
    """A table in memory as a frame; a TableError if it is not a table, or has no columns or rows."""
    table = _from_memory(source)
    if not table.width:
        raise TableError(f"expected a table with columns, given a {type(source).__name__} without any")
    if not len(table):
        raise TableError(f"expected a table with rows, given a {type(source).__name__} with columns but no rows")
    return table


def scan_chunks(table: pl.LazyFrame, n_rows: int, *, name: str = "the table") -> Iterator[pl.DataFrame]:
    """Collect a lazy table `n_rows` rows at a time, in order and in bounded memory; `name` is for errors."""
    with _table_errors(name):
        # Polars takes its chunk size as a hint only.
        yield from cut_rows(table.collect_batches(chunk_size=n_rows, maintain_order=True), n_rows)


def cut_rows(frames: Iterable[pl.DataFrame], n_rows: int) -> Iterator[pl.DataFrame]:
    """The same rows, `n_rows` at a time; the last chunk may be smaller."""
    waiting: pl.DataFrame | None = None
    for frame in frames:
        waiting = frame if waiting is None else pl.concat([waiting, frame])
        while len(waiting) >= n_rows:
            yield waiting.head(n_rows)
            waiting = waiting.slice(n_rows)
    if waiting is not None and len(waiting):
        yield waiting


@contextlib.contextmanager
def _table_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, *READ_ERRORS) as error:
        raise TableError(f"{name} cannot be read: {error}; is the file complete and of the right format?") from error


# --- files ----------------------------------------------------------------------------------------------------


def table_paths(source: Source) -> list[Path] | None:
    """The files that a path, a list of paths, a glob or a folder stands for; None for a table in memory.

    Raises:
        TableError: there is no such file, or one occurs twice.
    """
    if isinstance(source, (str, os.PathLike)):
        return _refuse_twice(_expand(source))
    if isinstance(source, (list, tuple)) and source and all(isinstance(p, (str, os.PathLike)) for p in source):
        return _refuse_twice([path for item in source for path in _expand(item)])
    return None


def _refuse_twice(paths: list[Path]) -> list[Path]:
    """The paths, unless two of them lead to the same file, whose rows would then count twice."""
    seen: dict[Path, Path] = {}
    for path in paths if len(paths) > 1 else ():
        first = seen.setdefault(path.resolve(), path)
        if first is not path:
            raise TableError(f"the file {path} is given twice (first as {first}). Give every file once")
    return paths


def _expand(source: str | os.PathLike[str]) -> list[Path]:
    """The files a path, a folder or a glob stands for, sorted by name."""
    path = Path(source).expanduser()
    if path.is_dir():
        return _tables_in(path)
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - absolute too
        if not found:
            raise TableError(f"no file matches {source}. Check the pattern")
        return found
    raise TableError(f"file {source} does not exist. Check the path (working folder: {Path.cwd()})")


def _tables_in(folder: Path) -> list[Path]:
    """Tables of a folder, without the markers and checksums that Spark writes, which start with _ or a dot."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] not in "._")
    tables = [p for p in files if _suffix(p) in {*_FORMATS, "txt"}]
    if not tables:
        raise TableError(f"folder {folder} holds no table; expected files such as .parquet, .arrow or .csv in it")
    return tables


def _suffix(path: Path) -> str:
    """The ending of a file name, without the dot and before .gz, .zst or .zip."""
    name = path.with_suffix("") if path.suffix.lower() in _PACKED else path
    return name.suffix.lower().removeprefix(".")


def scan_sparse(paths: list[Path], name: str, config: DataConfig, *, has_target: bool) -> pl.LazyFrame:
    """Files of sparse text as one table."""
    read = read_libffm if name == "libffm" else read_libsvm
    with _table_errors(", ".join(map(str, paths))):
        return read(paths, config, has_target=has_target)


def files_format(paths: list[Path], config: DataConfig) -> str:
    """The format of the files of a table."""
    with _table_errors(str(paths[0])):
        formats = [_format(path, config) for path in paths]
    for path, name in zip(paths, formats, strict=True):
        if name != formats[0]:
            raise TableError(
                f"files of one table must have the same format; {paths[0]} is {formats[0]}, {path} is {name}"
            )
    return formats[0]


def _format(path: Path, config: DataConfig) -> str:
    if config.format is not None:
        if config.format not in _FORMATS:
            raise ConfigError(f"data.format must be one of {', '.join(_FORMATS)}; given {config.format!r}")
        return _FORMATS[config.format]
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty (0 bytes). Give a file with a header and rows")
    return _FORMATS.get(_suffix(path)) or _format_of_content(path, config)


def _format_of_content(path: Path, config: DataConfig) -> str:
    start = read_start(path)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"ARROW1"):
        return "ipc"
    text = start[: 1 << 16].decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    lines = lines[:-1] if len(lines) > 1 else lines
    for name, pattern in (("libffm", _LIBFFM_LINE), ("libsvm", _LIBSVM_LINE)):
        if lines and all(pattern.fullmatch(line) for line in lines):
            return name
    declared = _suffix(path) == "txt" or config.delimiter is not None or config.encoding not in ("utf8", "utf-8")
    binary_or_markup = "\0" in text or text.lstrip()[:1] in ("{", "[", "<")
    if declared or (find_delimiter(start) and not binary_or_markup):
        return "csv"
    raise TableError(f"{path} has an unknown format; {SUPPORTED}. Otherwise set data.format")


def scan_binary(path: Path, name: str) -> pl.LazyFrame:
    """A Parquet or Arrow file; a TableError if it cannot be read, or has no columns or rows."""
    with _table_errors(str(path)):
        table = _scan_binary(path, name)
        if not table.collect_schema():
            raise TableError(f"{path} has no columns")
        if table.select(pl.len()).collect().item() == 0:
            raise TableError(f"{path} has columns but no rows")
        return table


def _scan_binary(path: Path, name: str) -> pl.LazyFrame:
    if name == "parquet":
        return pl.scan_parquet(path, glob=False, hive_partitioning=False)
    with path.open("rb") as file:
        is_stream = file.read(4) == b"\xff\xff\xff\xff"
    return pl.read_ipc_stream(path).lazy() if is_stream else pl.scan_ipc(path, glob=False, hive_partitioning=False)


def same_schema(paths: list[Path], schemas: list[pl.Schema]) -> pl.Schema:
    """The columns of the first file; all files must have them, in any order."""
    for path, other in zip(paths, schemas, strict=True):
        if dict(other) != dict(schemas[0]):
            raise TableError(
                f"files of one table must have the same columns; {_difference(path, other, paths[0], schemas[0])}"
            )
    return schemas[0]


def _difference(path: Path, other: pl.Schema, first: Path, schema: pl.Schema) -> str:
    lacking = [name for name in schema if name not in other]
    extra = [name for name in other if name not in schema]
    typed = [
        f"{name} ({other[name]}, not {schema[name]})"
        for name in schema
        if name in other and other[name] != schema[name]
    ]
    parts = {"lacks": lacking, "has in addition": extra, "has other types in": typed}
    return f"compared with {first}, {path} " + "; ".join(f"{k} {', '.join(v[:5])}" for k, v in parts.items() if v)


# --- memory ---------------------------------------------------------------------------------------------------


def _from_memory(source: Source) -> pl.DataFrame:
    if isinstance(source, pl.DataFrame):
        return source
    if isinstance(source, np.ndarray):
        return _from_numpy(source)
    if isinstance(source, Mapping):
        return _from_columns(source.items())
    if type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns"):
        return _from_columns((name, source.iloc[:, i]) for i, name in enumerate(source.columns))
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, pl.Series) and hasattr(source, "schema"):
        arrow = pa.table(source)
        refuse_duplicates(arrow.column_names, "the pyarrow table")
        return pl.DataFrame(arrow)
    raise TableError(f"cannot read a table from a {type(source).__name__}; {SUPPORTED}")


def _from_numpy(array: np.ndarray[Any, Any]) -> pl.DataFrame:
    if array.ndim != 2:
        raise TableError(f"expected a 2-D numpy array, given {array.ndim}-D of shape {array.shape}. Reshape it")
    if isinstance(array, np.ma.MaskedArray):
        plain = array.data.astype(object)
        plain[np.ma.getmaskarray(array)] = None
        array = plain
    return _from_columns((f"x{i}", array[:, i]) for i in range(array.shape[1]))


def _from_columns(columns: Iterable[tuple[Any, Any]]) -> pl.DataFrame:
    pairs = [(str(name), values) for name, values in columns]
    refuse_duplicates([name for name, _ in pairs], "the table")
    series = [_series(name, values) for name, values in pairs]
    lengths = {len(s) for s in series}
    if len(lengths) > 1:
        shown = ", ".join(f"{s.name}: {len(s)}" for s in series[:10])
        raise TableError(f"columns must have the same number of rows; given {shown}")
    return pl.DataFrame(series)


def _series(name: str, values: Any) -> pl.Series:
    """One column; values of mixed types, or of a type that Arrow does not know, become text."""
    if isinstance(values, pl.Series):
        return values.alias(name)
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) != 1:
        raise TableError(f"column {name!r} must be a list or 1-D array of values; given {type(values).__name__}")
    if getattr(getattr(values, "dtype", None), "kind", "") == "S":
        values = np.char.decode(values, "utf-8", "replace")
    try:
        array = pa.array(values, from_pandas=True)
        if not isinstance(array.type, pa.BaseExtensionType):
            return pl.Series(name, array)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    return pl.Series(name, [None if _is_missing(v) else str(v) for v in values], dtype=pl.String)


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA, recognized by the name of its type to avoid importing pandas."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or bool(np.ndim(value) == 0 and value != value)
    )

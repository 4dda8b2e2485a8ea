"""Sparse text: libffm (`label field:index:value ...`) and libsvm or libfm (`label index:value ...`).

Lines are read in chunks and parsed by Polars expressions. Chunks of a large file are kept as Parquet in a temporary
folder that is removed at exit, so memory does not grow with the file.

These formats name no columns and no kinds. Both follow from the complete file unless `data.fields` and `data.kinds`
give them: set both to read a file in the same way as another one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from fielddep.config.data import DataConfig
from fielddep.errors import TableError
from fielddep.tables.text import check_text, open_bytes, scratch_file

MAX_NUMERIC_COLUMNS = 1000
_CHUNK_BYTES = 1 << 24
_LINE, _TOKEN, _FIELD, _INDEX, _VALUE = "line", "token", "field", "index", "value"


def read_libffm(paths: Sequence[Path], config: DataConfig, *, has_target: bool = True) -> pl.LazyFrame:
    """One column per field number, named `field_0` and so on; null in rows without the field.

    A field whose values are all 1 is categorical, and its index as text is the value. A field with other values and a
    single index is numerical. `config.kinds` may set either kind.

    Raises:
        TableError: a malformed token, a field twice in a row, or values that fit neither kind.
    """
    chunks = [_libffm_chunk(tokens) for path in paths for tokens in _token_chunks(path, 3, has_target)]
    _refuse_empty(paths, chunks)
    wanted = [re.fullmatch(r"field_(\d+)", name) for name in config.fields or ()]
    numbers = {number for chunk in chunks for number in chunk.columns} | {int(match[1]) for match in wanted if match}
    numerical = {n for n in numbers if _is_numerical(paths, chunks, n, config.kinds.get(f"field_{n}"))}
    columns = [
        [_libffm_column(chunk, n, n in numerical).alias(f"field_{n}") for n in sorted(numbers)] for chunk in chunks
    ]
    return _join(chunks, columns, config)


def read_libsvm(paths: Sequence[Path], config: DataConfig, *, has_target: bool = True) -> pl.LazyFrame:
    """Positional fields or numeric columns, whichever the file holds.

    If every row has the same number of tokens, all with value 1, the tokens are the fields `field_0` and so on, and the
    index as text is the value. Otherwise index 7 is the numeric column `x7`, which is 0 in rows without it.

    Raises:
        TableError: a malformed token, an index twice in a row, or more than 1,000 numeric columns.
    """
    wanted = {*(config.fields or ()), *config.kinds}
    if not any(re.fullmatch(r"x\d+", name) for name in wanted):
        chunks = _positional_chunks(paths, has_target)
        if chunks is not None:
            _refuse_empty(paths, chunks)
            names = [pl.col(f"{_INDEX}_{i}").alias(f"field_{i}") for i in sorted(chunks[0].columns)]
            return _join(chunks, [names] * len(chunks), config)
    chunks = [_matrix_chunk(tokens) for path in paths for tokens in _token_chunks(path, 2, has_target)]
    _refuse_empty(paths, chunks)
    found = {index for chunk in chunks for index in chunk.columns}
    found |= {int(name[1:]) for name in config.fields or () if re.fullmatch(r"x\d+", name)}
    _refuse_too_many(paths[0], len(found))
    return _join(chunks, [_matrix_columns(chunk, sorted(found)) for chunk in chunks], config)


# --- chunks of lines ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """Columns of some lines, in memory or in a temporary file.

    Attributes:
        table: one row per line.
        columns: field numbers or indices that occur.
        labelled: whether the lines have labels.
        weighted: field numbers with values other than 1.
        indices: lowest and highest index of every field, to tell a single index from several.
    """

    table: pl.LazyFrame
    columns: frozenset[int]
    labelled: bool
    weighted: frozenset[int] = frozenset()
    indices: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Tokens:
    """Parsed lines: `lines` has one row per line (number, label), `tokens` one row per token."""

    path: Path
    lines: pl.DataFrame
    tokens: pl.DataFrame

    def chunk(self, table: pl.DataFrame, columns: Iterable[int]) -> _Chunk:
        """A chunk with this table, which stays in memory only if the file is small."""
        lazy = table.lazy()
        if self.path.stat().st_size >= _CHUNK_BYTES:
            file = scratch_file(".parquet")
            table.write_parquet(file, compression="lz4")
            lazy = pl.scan_parquet(file, glob=False)
        return _Chunk(table=lazy, columns=frozenset(columns), labelled=self.lines["label"].null_count() == 0)


def _token_chunks(path: Path, n_parts: int, has_target: bool) -> Iterator[_Tokens]:
    line, rest, labelled = 1, b"", True if has_target else None
    with open_bytes(path) as stream:
        while True:
            read = stream.read(_CHUNK_BYTES)
            data = rest + read
            size = data.rfind(b"\n") + 1 if read else len(data)
            data, rest = data[:size], data[size:]
            check_text(path, data, line)
            lines = _split_lines(data.removeprefix(codecs.BOM_UTF8) if line == 1 else data, line)
            if len(lines):
                if labelled is None:
                    labelled = ":" not in lines[_TOKEN][0][0]
                yield _parse(path, lines, n_parts, labelled)
            if not read:
                return
            line += data.count(b"\n")


def _split_lines(data: bytes, first_line: int) -> pl.DataFrame:
    """Number and list of tokens of every line that has any."""
    lines = pl.read_lines(data, row_index_name=_LINE, row_index_offset=first_line, name=_TOKEN)
    text = pl.col(_TOKEN)
    if b"#" in data:
        text = text.str.replace(r"#.*", "")
    if b"\t" in data:
        text = text.str.replace_all("\t", " ", literal=True)
    if b"  " in data:
        text = text.str.replace_all(r" +", " ")
    lines = lines.with_columns(text.str.strip_chars()).filter(pl.col(_TOKEN) != "")
    return lines.with_columns(pl.col(_TOKEN).str.split(" "))


def _parse(path: Path, split: pl.DataFrame, n_parts: int, labelled: bool) -> _Tokens:
    label = pl.col(_TOKEN).list.first() if labelled else pl.lit(None, pl.String)
    lines = split.select(_LINE, label.alias("label"))
    if labelled:
        unlabelled = lines.filter(pl.col("label").str.contains(":", literal=True))
        if len(unlabelled):
            raise TableError(
                f"{path}, line {unlabelled[_LINE][0]}: expected a label first, found {unlabelled['label'][0]!r}"
            )
        split = split.with_columns(pl.col(_TOKEN).list.slice(1))
    tokens = split.explode(_TOKEN).drop_nulls(_TOKEN)
    return _Tokens(path=path, lines=lines, tokens=_split_tokens(path, tokens, n_parts))


def _split_tokens(path: Path, tokens: pl.DataFrame, n_parts: int) -> pl.DataFrame:
    """Columns line, (field,) index and value; raises at the first malformed token."""
    names = [_FIELD, _INDEX, _VALUE][-n_parts:]
    parts = pl.col(_TOKEN).str.splitn(":", n_parts).struct.rename_fields(names).alias("parts")
    split = tokens.with_columns(parts).unnest("parts")
    typed = [pl.col(_VALUE).cast(pl.Float64, strict=False)]
    if n_parts == 3:
        typed.append(pl.col(_FIELD).cast(pl.UInt32, strict=False))
    split = split.with_columns(*typed, pl.col(_INDEX).cast(pl.UInt64, strict=False).alias("index_number"))
    bad = split.filter(pl.any_horizontal(pl.col(*names, "index_number").is_null()))
    if len(bad):
        form = ":".join(names)
        raise TableError(
            f"{path}, line {bad[_LINE][0]}: expected tokens {form} of numbers, found {bad[_TOKEN][0]!r}. Correct it"
        )
    return split.drop(_TOKEN)


def _join(chunks: Sequence[_Chunk], columns: Sequence[list[pl.Expr]], config: DataConfig) -> pl.LazyFrame:
    label = [pl.col("label").alias(config.target or "label")] if any(chunk.labelled for chunk in chunks) else []
    return pl.concat([chunk.table.select(label + own) for chunk, own in zip(chunks, columns, strict=True)])


def _refuse_empty(paths: Sequence[Path], chunks: Sequence[_Chunk]) -> None:
    if not chunks:
        raise TableError(f"{paths[0]} is empty; expected lines of a label and tokens")
    if not any(chunk.columns for chunk in chunks):
        raise TableError(f"{paths[0]} has labels but no token; expected tokens after each label")


def _refuse_twice(found: _Tokens, key: str, what: str, advice: str) -> None:
    """Raise a TableError if a field or index occurs twice in a line."""
    pair = found.tokens.select(_LINE, key)
    same_line = pl.col(_LINE) == pl.col(_LINE).shift()
    if pair.select((same_line & (pl.col(key) <= pl.col(key).shift())).any()).item() is not True:
        return  # ascending in every line, as in most files; this spares the costly search for duplicates
    twice = pair.filter(pair.is_duplicated())
    if len(twice):
        raise TableError(
            f"{found.path}, line {twice[_LINE][0]}: {what} {twice[key][0]} occurs twice in the row. {advice}"
        )


def _spread(found: _Tokens, key: str, take: Callable[[int], dict[str, str]]) -> pl.DataFrame:
    """One row per line; for every value of `key`, the token columns that `take` lists under their new names."""
    table = found.lines
    groups = found.tokens.partition_by(key, as_dict=True, maintain_order=True)
    for (number,), group in sorted(groups.items()):
        renamed = group.select(_LINE, *(pl.col(old).alias(new) for old, new in take(number).items()))
        if len(group) == len(table):  # in every line, and tokens are in the order of the lines
            table = table.hstack(renamed.drop(_LINE))
        else:
            table = table.join(renamed, on=_LINE, how="left", maintain_order="left")
    return table.drop(_LINE)


# --- libffm ---------------------------------------------------------------------------------------------------


def _libffm_chunk(found: _Tokens) -> _Chunk:
    advice = "Fields with several values are not supported yet: keep one value, or make each a field"
    _refuse_twice(found, _FIELD, "field", advice)
    facts = found.tokens.group_by(_FIELD).agg(
        (pl.col(_VALUE) != 1).any().alias("weighted"),
        pl.col("index_number").min().alias("low"),
        pl.col("index_number").max().alias("high"),
    )
    weighted = frozenset(facts.filter("weighted")[_FIELD].to_list())

    def take(number: int) -> dict[str, str]:
        index = {_INDEX: f"{_INDEX}_{number}"}
        return {**index, _VALUE: f"{_VALUE}_{number}"} if number in weighted else index

    indices = {row[_FIELD]: frozenset((row["low"], row["high"])) for row in facts.iter_rows(named=True)}
    return replace(found.chunk(_spread(found, _FIELD, take), indices), weighted=weighted, indices=indices)


def _is_numerical(paths: Sequence[Path], chunks: Sequence[_Chunk], number: int, kind: str | None) -> bool:
    """Whether a field is numerical: by `kind`, or because it has values other than 1."""
    weighted = any(number in chunk.weighted for chunk in chunks)
    indices = {index for chunk in chunks for index in chunk.indices.get(number, ())}
    if kind == "numerical" or (weighted and kind is None):
        if len(indices) <= 1:
            return True
        reason = "values other than 1 and several indices"
    elif weighted:
        reason = "values other than 1, but is categorical in data.kinds"
    else:
        return False
    raise TableError(
        f"{paths[0]}: field {number} has {reason}. A categorical field has the value 1 only, a numerical field one "
        "index: make it one of the two"
    )


def _libffm_column(chunk: _Chunk, number: int, numerical: bool) -> pl.Expr:
    if number not in chunk.columns:
        return pl.lit(None, pl.Float64 if numerical else pl.Categorical)
    if not numerical:
        # An index is a name, even if a column of them looks like a measure.
        return pl.col(f"{_INDEX}_{number}").cast(pl.Categorical)
    if number in chunk.weighted:
        return pl.col(f"{_VALUE}_{number}")
    return pl.when(pl.col(f"{_INDEX}_{number}").is_not_null()).then(1.0)


# --- libsvm ---------------------------------------------------------------------------------------------------


def _positional_chunks(paths: Sequence[Path], has_target: bool) -> list[_Chunk] | None:
    """Chunks whose fields follow from their position; None if rows differ in length or have values other than 1."""
    chunks: list[_Chunk] = []
    for path in paths:
        for found in _token_chunks(path, 2, has_target):
            chunk = _positional_chunk(found)
            if chunk is None or (chunks and chunk.columns != chunks[0].columns):
                return None
            chunks.append(chunk)
    return chunks


def _positional_chunk(found: _Tokens) -> _Chunk | None:
    n_lines, tokens = len(found.lines), found.tokens
    width, left_over = divmod(len(tokens), n_lines)
    if left_over or not (tokens[_VALUE] == 1).all():
        return None
    first_of_row = tokens[_LINE].gather_every(max(width, 1))
    last_of_row = tokens[_LINE].gather_every(max(width, 1), offset=max(width - 1, 0))
    if not (first_of_row.equals(last_of_row) and first_of_row.n_unique() == n_lines):
        return None
    columns = [tokens[_INDEX].gather_every(width, offset=i).alias(f"{_INDEX}_{i}") for i in range(width)]
    return found.chunk(found.lines.drop(_LINE).hstack(columns), range(width))


def _matrix_chunk(found: _Tokens) -> _Chunk:
    _refuse_twice(found, "index_number", "index", "Keep one of the two")
    columns = found.tokens["index_number"].unique().to_list()
    _refuse_too_many(found.path, len(columns))
    return found.chunk(_spread(found, "index_number", lambda index: {_VALUE: f"x{index}"}), columns)


def _matrix_columns(chunk: _Chunk, indices: Sequence[int]) -> list[pl.Expr]:
    return [(pl.col(f"x{i}").fill_null(0.0) if i in chunk.columns else pl.lit(0.0)).alias(f"x{i}") for i in indices]


def _refuse_too_many(path: Path, n_columns: int) -> None:
    if n_columns > MAX_NUMERIC_COLUMNS:
        raise TableError(
            f"{path}: {n_columns} or more indices would give as many numeric columns; at most {MAX_NUMERIC_COLUMNS} "
            "are supported. Write the table with one column per field, or as libffm"
        )

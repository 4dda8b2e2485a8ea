"""Sparse text: libffm (`label field:index:value ...`) and libsvm or libfm (`label index:value ...`).

Lines are read in blocks and taken apart by Polars expressions. Blocks of a large file are kept as Parquet in a
temporary folder that is removed at exit, so the memory in use does not grow with the file.

The format says less than a table does. What the whole file leaves open is decided by `data.fields` and
`data.kinds` where they name a column: give both when a file must be read as another one was.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fielddep.config.settings import DataConfig
from fielddep.errors import TableError
from fielddep.tables.text import check_text, open_bytes, scratch_file

MAX_NUMERIC_COLUMNS = 1000
_BLOCK_BYTES = 1 << 24
_LINE, _TOKEN, _FIELD, _INDEX, _VALUE = "line", "token", "field", "index", "value"


def read_libffm(paths: Sequence[Path], config: DataConfig, *, has_target: bool = True) -> pl.LazyFrame:
    """One column a field number, `field_0` on; a row without the field holds null.

    A field whose values are all 1 is categorical and its index, as text, is the value. A field with other values
    and a single index is numerical. `config.kinds` may say either.

    Raises:
        TableError: a malformed token, a field twice in a row, or values that fit neither kind.
    """
    blocks = [_libffm_block(block) for path in paths for block in _blocks(path, 3, has_target)]
    _refuse_empty(paths, blocks)
    numbers = sorted({number for block in blocks for number in block.columns})
    for name in config.fields or ():
        if (match := re.fullmatch(r"field_(\d+)", name)) and int(match[1]) not in numbers:
            numbers = sorted([*numbers, int(match[1])])
    numerical = {n for n in numbers if _is_numerical(paths, blocks, n, config.kinds.get(f"field_{n}"))}
    columns = [_libffm_columns(block, numbers, numerical) for block in blocks]
    return _join(blocks, columns, config)


def read_libsvm(paths: Sequence[Path], config: DataConfig, *, has_target: bool = True) -> pl.LazyFrame:
    """Positional fields or numeric columns, whichever the file holds.

    When every row has the same number of tokens, all of value 1, the tokens are fields `field_0` on and the index,
    as text, is the value. Otherwise index 7 is the numeric column `x7`, and 0 where it is absent.

    Raises:
        TableError: a malformed token, an index twice in a row, or more than 1,000 numeric columns.
    """
    wanted = {*(config.fields or ()), *config.kinds}
    if not any(re.fullmatch(r"x\d+", name) for name in wanted):
        blocks = _positional_blocks(paths, has_target)
        if blocks is not None:
            _refuse_empty(paths, blocks)
            names = [pl.col(f"{_INDEX}_{i}").alias(f"field_{i}") for i in sorted(blocks[0].columns)]
            return _join(blocks, [names] * len(blocks), config)
    blocks = [_matrix_block(block) for path in paths for block in _blocks(path, 2, has_target)]
    _refuse_empty(paths, blocks)
    found = {index for block in blocks for index in block.columns}
    found |= {int(name[1:]) for name in config.fields or () if re.fullmatch(r"x\d+", name)}
    _refuse_too_many(paths, len(found))
    return _join(blocks, [_matrix_columns(block, sorted(found)) for block in blocks], config)


# --- blocks of lines ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Tokens:
    """Parsed lines: one row a line in `lines` (number, label) and one row a token in `tokens`."""

    path: Path
    lines: pl.DataFrame
    tokens: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Columns of one block of lines, in memory or in a temporary file.

    Attributes:
        table: one row a line.
        columns: field numbers or indices that occur.
        weighted: field numbers with values other than 1.
        indices: lowest and highest index of every field, to tell a single index from several.
        labelled: whether the column of labels is there.
    """

    table: pl.LazyFrame
    columns: frozenset[int]
    labelled: bool
    weighted: frozenset[int] = frozenset()
    indices: Mapping[int, frozenset[int]] = field(default_factory=dict)


def _blocks(path: Path, n_parts: int, has_target: bool) -> Iterator[_Tokens]:
    line, rest, labelled = 1, b"", True if has_target else None
    with open_bytes(path) as stream:
        while True:
            read = stream.read(_BLOCK_BYTES)
            data = rest + read
            size = data.rfind(b"\n") + 1 if read else len(data)
            data, rest = data[:size], data[size:]
            check_text(path, data, line)
            block = _split_lines(data.removeprefix(codecs.BOM_UTF8) if line == 1 else data, line)
            if len(block):
                if labelled is None:
                    labelled = ":" not in block[_TOKEN][0][0]
                yield _parse(path, block, n_parts, labelled)
            if not read:
                return
            line += data.count(b"\n")


def _split_lines(data: bytes, first_line: int) -> pl.DataFrame:
    """Line numbers and lists of tokens of the lines that hold any."""
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


def _parse(path: Path, block: pl.DataFrame, n_parts: int, labelled: bool) -> _Tokens:
    label = pl.col(_TOKEN).list.first() if labelled else pl.lit(None, pl.String)
    lines = block.select(_LINE, label.alias("label"))
    if labelled:
        unlabelled = lines.filter(pl.col("label").str.contains(":", literal=True))
        if len(unlabelled):
            raise TableError(
                f"{path}, line {unlabelled[_LINE][0]}: expected a label first, found {unlabelled['label'][0]!r}"
            )
        block = block.with_columns(pl.col(_TOKEN).list.slice(1))
    tokens = block.explode(_TOKEN).drop_nulls(_TOKEN)
    return _Tokens(path=path, lines=lines, tokens=_split_tokens(path, tokens, n_parts))


def _split_tokens(path: Path, tokens: pl.DataFrame, n_parts: int) -> pl.DataFrame:
    """Columns line, (field,) index and value; raises at the first token that is not made so."""
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
            f"{path}, line {bad[_LINE][0]}: expected tokens {form} of numbers, found {bad[_TOKEN][0]!r}; correct it"
        )
    return split.drop(_TOKEN)


def _store(table: pl.DataFrame, path: Path) -> pl.LazyFrame:
    """The block's table; it stays in memory only while the file is small."""
    if path.stat().st_size < _BLOCK_BYTES:
        return table.lazy()
    file = scratch_file(".parquet")
    table.write_parquet(file, compression="lz4")
    return pl.scan_parquet(file, glob=False)


def _join(blocks: Sequence[_Block], columns: Sequence[list[pl.Expr]], config: DataConfig) -> pl.LazyFrame:
    label = [pl.col("label").alias(config.target or "label")] if any(b.labelled for b in blocks) else []
    return pl.concat([b.table.select(label + c) for b, c in zip(blocks, columns, strict=True)])


def _refuse_empty(paths: Sequence[Path], blocks: Sequence[_Block]) -> None:
    if not blocks:
        raise TableError(f"{paths[0]} is empty; expected lines of a label and tokens")
    if not any(block.columns for block in blocks):
        raise TableError(f"{paths[0]} has labels but not one token; expected tokens after each label")


def _refuse_twice(block: _Tokens, key: str, what: str, advice: str) -> None:
    """Raise when a field or index occurs twice in a line."""
    pair = block.tokens.select(_LINE, key)
    same_line = pl.col(_LINE) == pl.col(_LINE).shift()
    if pair.select((same_line & (pl.col(key) <= pl.col(key).shift())).any()).item() is not True:
        return  # ascending in every line, as most files are, and so without the cost of comparing all pairs
    twice = pair.filter(pair.is_duplicated())
    if len(twice):
        raise TableError(
            f"{block.path}, line {twice[_LINE][0]}: {what} {twice[key][0]} occurs twice in the row; {advice}"
        )


def _spread(block: _Tokens, key: str, take: Callable[[int], dict[str, str]]) -> pl.DataFrame:
    """One row a line; for every value of `key`, the token columns that `take` lists under their new names."""
    table = block.lines
    groups = block.tokens.partition_by(key, as_dict=True, maintain_order=True)
    for (number,), group in sorted(groups.items()):
        renamed = group.select(_LINE, *(pl.col(old).alias(new) for old, new in take(number).items()))
        if len(group) == len(table):  # in every line, and tokens stand in the order of the lines
            table = table.hstack(renamed.drop(_LINE))
        else:
            table = table.join(renamed, on=_LINE, how="left", maintain_order="left")
    return table.drop(_LINE)


# --- libffm ---------------------------------------------------------------------------------------------------


def _libffm_block(block: _Tokens) -> _Block:
    advice = "fields with several values are not supported yet; keep one value, or make a field of each"
    _refuse_twice(block, _FIELD, "field", advice)
    facts = block.tokens.group_by(_FIELD).agg(
        (pl.col(_VALUE) != 1).any().alias("weighted"),
        pl.col("index_number").min().alias("low"),
        pl.col("index_number").max().alias("high"),
    )
    weighted = frozenset(facts.filter("weighted")[_FIELD].to_list())

    def take(number: int) -> dict[str, str]:
        index = {_INDEX: f"{_INDEX}_{number}"}
        return {**index, _VALUE: f"{_VALUE}_{number}"} if number in weighted else index

    return _Block(
        table=_store(_spread(block, _FIELD, take), block.path),
        columns=frozenset(facts[_FIELD].to_list()),
        labelled=block.lines["label"].null_count() == 0,
        weighted=weighted,
        indices={row[_FIELD]: frozenset((row["low"], row["high"])) for row in facts.iter_rows(named=True)},
    )


def _is_numerical(paths: Sequence[Path], blocks: Sequence[_Block], number: int, kind: str | None) -> bool:
    """Whether a field is numerical: it is said to be, or has values other than 1."""
    weighted = any(number in block.weighted for block in blocks)
    indices = {index for block in blocks for index in block.indices.get(number, ())}
    if kind == "numerical" or (weighted and kind is None):
        if len(indices) <= 1:
            return True
        reason = "values other than 1 and several indices"
    elif weighted:
        reason = "values other than 1 and is said to be categorical in data.kinds"
    else:
        return False
    raise TableError(
        f"{paths[0]}: field {number} has {reason}; a categorical field has values of 1 only, a numerical field one "
        "index: make it one of the two"
    )


def _libffm_columns(block: _Block, numbers: Sequence[int], numerical: set[int]) -> list[pl.Expr]:
    return [_libffm_column(block, n, n in numerical).alias(f"field_{n}") for n in numbers]


def _libffm_column(block: _Block, number: int, numerical: bool) -> pl.Expr:
    if number not in block.columns:
        return pl.lit(None, pl.Float64 if numerical else pl.Categorical)
    if not numerical:
        # An index is a name, however much a column of them looks like a measure.
        return pl.col(f"{_INDEX}_{number}").cast(pl.Categorical)
    if number in block.weighted:
        return pl.col(f"{_VALUE}_{number}")
    return pl.when(pl.col(f"{_INDEX}_{number}").is_not_null()).then(1.0)


# --- libsvm ---------------------------------------------------------------------------------------------------


def _positional_blocks(paths: Sequence[Path], has_target: bool) -> list[_Block] | None:
    """Blocks of fields recognized by their position; None when rows differ in length or values differ from 1."""
    blocks: list[_Block] = []
    for path in paths:
        for block in _blocks(path, 2, has_target):
            positional = _positional_block(block)
            if positional is None or (blocks and positional.columns != blocks[0].columns):
                return None
            blocks.append(positional)
    return blocks


def _positional_block(block: _Tokens) -> _Block | None:
    n_lines, n_tokens = len(block.lines), len(block.tokens)
    width, left_over = divmod(n_tokens, n_lines)
    if left_over or not (block.tokens[_VALUE] == 1).all():
        return None
    first_of_row = block.tokens[_LINE].gather_every(max(width, 1))
    last_of_row = block.tokens[_LINE].gather_every(max(width, 1), offset=max(width - 1, 0))
    if not (first_of_row.equals(last_of_row) and first_of_row.n_unique() == n_lines):
        return None
    columns = [block.tokens[_INDEX].gather_every(width, offset=i).alias(f"{_INDEX}_{i}") for i in range(width)]
    table = block.lines.drop(_LINE).hstack(columns)
    labelled = block.lines["label"].null_count() == 0
    return _Block(table=_store(table, block.path), columns=frozenset(range(width)), labelled=labelled)


def _matrix_block(block: _Tokens) -> _Block:
    _refuse_twice(block, "index_number", "index", "keep one of the two")
    columns = frozenset(block.tokens["index_number"].unique().to_list())
    _refuse_too_many([block.path], len(columns))
    table = _spread(block, "index_number", lambda index: {_VALUE: f"x{index}"})
    labelled = block.lines["label"].null_count() == 0
    return _Block(table=_store(table, block.path), columns=columns, labelled=labelled)


def _matrix_columns(block: _Block, indices: Sequence[int]) -> list[pl.Expr]:
    return [(pl.col(f"x{i}").fill_null(0.0) if i in block.columns else pl.lit(0.0)).alias(f"x{i}") for i in indices]


def _refuse_too_many(paths: Sequence[Path], n_columns: int) -> None:
    if n_columns > MAX_NUMERIC_COLUMNS:
        raise TableError(
            f"{paths[0]}: {n_columns} or more indices would be as many numeric columns; at most "
            f"{MAX_NUMERIC_COLUMNS} are supported. Write the table with one column a field, or as libffm"
        )

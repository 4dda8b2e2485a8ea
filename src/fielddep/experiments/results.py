"""Results: what one run of an experiment gave, as a line of JSON and as rows of a tidy frame."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from fielddep.config.decode import decode
from fielddep.errors import TableError, UserError
from fielddep.observer import JobResult

COSTS = ("n_parameters", "train_seconds", "rows_per_s", "peak_mb", "predict_seconds", "predict_rows_per_s")
DEFAULT_SETTINGS = "default"
_NAMES = ("dataset", "model", "seed")
_KEYS = ("dataset", "model", "variant", "seed")
_NEEDED = (*_NAMES, "metric", "value")
_ORIGIN = ("n_trees", "threads", "device", "commit", "error")
_INTEGERS = ("seed", "n_parameters", "n_trees", "threads")
_FLOATS = ("value", *COSTS)
_COLUMNS = (*_KEYS, "split", "metric", *_FLOATS, *_ORIGIN)
_SCHEMA: dict[str, pl.DataType] = {
    name: pl.Int64() if name in _INTEGERS else pl.Float64() if name in _FLOATS else pl.String() for name in _COLUMNS
}


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One model, trained once. What is not known is None.

    Attributes:
        settings: name of its settings ("tuned", "default"), the column `variant` of a tidy frame.
        metrics: figures by part of the rows and name: `metrics["test"]["auc"]`.
        train_seconds: wall time of the training.
        rows_per_s: rows trained on per second.
        peak_mb: largest resident memory of the run.
        predict_seconds: wall time of predicting the test rows.
        n_trees: trees trained until early stopping, of a tree model.
        commit: version of the source.
        error: why the run failed; None for a finished one.
    """

    dataset: str
    model: str
    seed: int
    settings: str = DEFAULT_SETTINGS
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    n_parameters: int | None = None
    train_seconds: float | None = None
    rows_per_s: float | None = None
    peak_mb: float | None = None
    predict_seconds: float | None = None
    predict_rows_per_s: float | None = None
    n_trees: int | None = None
    threads: int | None = None
    device: str | None = None
    commit: str | None = None
    error: str | None = None

    def job_result(self) -> JobResult:
        """How the run ended, for observers."""
        if self.error is not None:
            return JobResult(state="failed", reason=self.error)
        return JobResult(state="complete", metrics=self.metrics.get("test", {}), seconds=self.train_seconds)

    def to_json(self) -> str:
        """One line; a number that is not finite becomes null."""
        return json.dumps(_plain(dataclasses.asdict(self)), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RunResult:
        """Read what `to_json` wrote; a metric that is null becomes NaN.

        Raises:
            UserError: the text is damaged, or a key is unknown, missing or of the wrong type.

        Example:
            >>> run = RunResult(dataset="frappe", model="fm", seed=0, metrics={"test": {"auc": 0.98}})
            >>> RunResult.from_json(run.to_json()) == run
            True
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"expected a run as JSON, given {text[:40]!r} ({error}); run it again") from error
        if not isinstance(values, dict):
            raise UserError(f"expected a run as a JSON object, given {text[:40]!r}; run it again")
        figures = decode(values.pop("metrics", {}), dict[str, dict[str, float | None]], "metrics of a run")
        run: RunResult = decode(values, cls, "a run")
        return dataclasses.replace(
            run,
            metrics={
                part: {name: _number(figure) for name, figure in named.items()} for part, named in figures.items()
            },
        )


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(figure: float | None) -> float:
    return math.nan if figure is None else figure


def to_frame(results: Iterable[RunResult]) -> pl.DataFrame:
    """A tidy frame: one row per run, part of the rows and metric; a run without metrics keeps one row."""
    rows = [row for result in results for row in _rows(result)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _rows(result: RunResult) -> list[tuple[Any, ...]]:
    keys = (result.dataset, result.model, result.settings, result.seed)
    rest = tuple(getattr(result, name) for name in (*COSTS, *_ORIGIN))
    figures: list[tuple[Any, ...]] = [
        (part, name, value) for part, named in result.metrics.items() for name, value in named.items()
    ]
    return [(*keys, *figure, *rest) for figure in figures or [(None, None, None)]]


def from_frame(frame: pl.DataFrame) -> list[RunResult]:
    """The runs of a tidy frame, in the order of their first rows.

    Needs the columns dataset, model, seed, metric and value. The other columns of `to_frame` may be absent, and unknown
    columns are ignored.

    Raises:
        TableError: a needed column is absent, or a cell does not fit its column.
    """
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing:
        raise TableError(f"results need the columns {', '.join(_NEEDED)}; add {', '.join(missing)}")
    defaults = {"variant": DEFAULT_SETTINGS, "split": "test"}
    absent = [pl.lit(value).alias(name) for name, value in defaults.items() if name not in frame.columns]
    groups = _typed(frame).with_columns(absent).group_by(_KEYS, maintain_order=True)
    return [_run(dict(zip(_KEYS, key, strict=True)), part) for key, part in groups]


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """The known columns, each of its type."""
    known = [pl.col(name).cast(kind) for name, kind in _SCHEMA.items() if name in frame.columns]
    try:
        typed = frame.select(known)
    except pl.exceptions.PolarsError as error:
        raise TableError(f"a cell of the results does not fit its column: {error}; correct the file") from error
    empty = [name for name in _NAMES if typed[name].null_count()]
    if empty:
        raise TableError(f"every row of the results needs {', '.join(_NAMES)}; empty cells in {', '.join(empty)}")
    return typed


def _run(key: dict[str, Any], rows: pl.DataFrame) -> RunResult:
    metrics: dict[str, dict[str, float]] = {}
    for part, name, value in rows.select("split", "metric", "value").drop_nulls(["split", "metric"]).iter_rows():
        metrics.setdefault(part, {})[name] = _number(value)
    present = [name for name in (*COSTS, *_ORIGIN) if name in rows.columns]
    others: dict[str, Any] = {name: rows[name].drop_nulls().first() for name in present}
    settings = key.pop("variant") or DEFAULT_SETTINGS
    return RunResult(**key, settings=settings, metrics=metrics, **others)


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """CSV with every digit of a number, and an empty cell for None."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
    return text.getvalue()

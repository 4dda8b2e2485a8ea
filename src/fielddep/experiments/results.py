"""Results: what one run of an experiment gave, as a line of JSON and as rows of a tidy frame."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
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
_ORIGIN = ("threads", "device", "commit", "error")
_TEXT, _WHOLE, _NUMBER = pl.String(), pl.Int64(), pl.Float64()
_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("dataset", "model", "variant"), _TEXT),
    "seed": _WHOLE,
    **dict.fromkeys(("split", "metric"), _TEXT),
    "value": _NUMBER,
    **dict.fromkeys(COSTS, _NUMBER),
    "n_parameters": _WHOLE,
    "threads": _WHOLE,
    **dict.fromkeys(_ORIGIN[1:], _TEXT),
}


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One model, trained once.

    Attributes:
        dataset: name of the data.
        model: name of the model.
        seed: seed of the run.
        settings: name of its settings ("tuned", "default"), the column `variant` of a tidy frame.
        metrics: figures by part of the rows and name: `metrics["test"]["auc"]`.
        n_parameters: trained numbers of the model.
        train_seconds: wall time of the training.
        rows_per_s: rows trained on a second.
        peak_mb: largest resident memory of the run.
        predict_seconds: wall time of predicting the test rows.
        predict_rows_per_s: rows predicted a second.
        threads: CPU threads that it had, where known.
        device: device of its tensors, where known.
        commit: version of the source that ran.
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
        """Read what `to_json` wrote; a metric that is null is not a number.

        Raises:
            UserError: when the text is damaged, or a key is unknown, missing or of the wrong type.

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
        return dataclasses.replace(run, metrics=_figures(figures))


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _figures(metrics: dict[str, dict[str, float | None]]) -> dict[str, dict[str, float]]:
    return {
        part: {name: math.nan if figure is None else figure for name, figure in named.items()}
        for part, named in metrics.items()
    }


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

    The columns dataset, model, seed, metric and value are needed; variant, split, the costs, threads, device, commit
    and error may be absent, and columns of other names are ignored.

    Raises:
        TableError: when a needed column is absent, or a cell is not what its column holds.
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
        metrics.setdefault(part, {})[name] = math.nan if value is None else value
    others = {name: _first(rows, name) for name in (*COSTS, *_ORIGIN)}
    settings = key.pop("variant") or DEFAULT_SETTINGS
    return RunResult(**key, settings=settings, metrics=metrics, **others)


def _first(rows: pl.DataFrame, name: str) -> Any:
    return rows[name].drop_nulls().first() if name in rows.columns else None

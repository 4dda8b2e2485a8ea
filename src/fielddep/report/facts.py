"""The numbers of a report. `data` and `measured` collect them, `build` puts them together, `page` draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fielddep.config.decode import decode
from fielddep.errors import ConfigError, UserError
from fielddep.report.intervals import Interval
from fielddep.training.checkpoint import Evaluation

FORMAT = 3
AGAIN = "Give the table to measure the model again"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting and its default."""

    path: str
    value: str
    default: str


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """What was trained on what.

    Attributes:
        run: folder of the run, as it was given.
        bundle: checksum of the model, to recognise one that replaced it.
        source: name of the table or store.
        n_rows: its rows.
        parts: rows of train, validation and test, where they are known.
        split: how the rows were split, in words.
        target: column to predict.
        task: binary, multiclass or regression.
        classes: labels of the target.
        base: output of a model that knows the base rate of the training rows only; empty where it is not known.
        model: name of the model.
        n_parameters: its trained parameters.
        n_ids: ids over all fields and crosses, those for missing and for rare values among them.
        crosses: names of crosses of two fields.
        changed: settings given that differ from their defaults.
        decided: settings chosen from the data.
        versions: of this library and what it runs on, by name.
        command: how the run was made.
    """

    run: str
    bundle: str
    source: str
    n_rows: int
    parts: dict[str, int]
    split: str
    target: str
    task: str
    classes: tuple[str, ...]
    base: tuple[float, ...]
    model: str
    n_parameters: int
    n_ids: int
    crosses: tuple[str, ...]
    changed: tuple[Setting, ...]
    decided: tuple[Setting, ...]
    versions: tuple[tuple[str, str], ...]
    command: str


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """One field.

    Attributes:
        name: its column.
        kind: what it is, in words.
        n_values: different values or bins that have ids of their own; None for a number that enters as it is.
        missing: share of training rows without a value.
        rare: share of training rows whose value is too rare for an id of its own.
        unknown: share of the measured rows whose value is rare or was not seen in training; so is an empty cell where
            training had none.
        frequent: its most frequent values and their shares of training rows.
        example: a value to try a prediction with: the most frequent one, or a number.
    """

    name: str
    kind: str
    n_values: int | None
    missing: float
    rare: float
    unknown: float
    frequent: tuple[tuple[str, float], ...]
    example: str | None


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """The fields, and what deserves a look.

    Attributes:
        fields: all fields, in the order of the table.
        skipped: columns that can teach nothing, each with the reason.
        leaks: fields that alone determine the target.
        warnings: what else is odd: the field, or nothing for the table as a whole, and what it is.
    """

    fields: tuple[FieldFacts, ...]
    skipped: tuple[tuple[str, str], ...]
    leaks: tuple[str, ...]
    warnings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class CalibrationPoint:
    """Rows of about the same prediction: what was predicted on average, and what happened."""

    predicted: float
    observed: float
    low: float
    high: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """How the predictions of groups of rows are spread: name of each group, and its shares between the edges."""

    edges: tuple[float, ...]
    shares: tuple[tuple[str, tuple[float, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class ImportanceFacts:
    """Permutation importance.

    Attributes:
        metric: what becomes worse.
        n_rows: rows that were shuffled.
        n_repeats: shuffles of each field.
        fields: name, mean rise or fall, and its standard deviation over the repeats; the most important first.
    """

    metric: str
    n_rows: int
    n_repeats: int
    fields: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """One step of the refinement of a row.

    Attributes:
        loss: dependency loss, summed over all fields.
        weights: mu(t)/lambda of every field.
        w: W(t) between the fields that are shown, one tuple a source.
    """

    loss: float
    weights: tuple[float, ...]
    w: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class RefinementFacts:
    """What refinement made of a row.

    Attributes:
        dependencies: mu(T)/lambda * W(T), one tuple a source.
        shown: positions of the fields with the strongest dependencies, which are shown.
        steps: the steps from 0 to T.
    """

    dependencies: tuple[tuple[float, ...], ...]
    shown: tuple[int, ...]
    steps: tuple[StepFacts, ...]

    @property
    def weights(self) -> tuple[float, ...]:
        """mu(T)/lambda of every field."""
        return self.steps[-1].weights


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """One row explained.

    Attributes:
        why: why it was chosen: right, wrong, unsure or random.
        number: its place among the measured rows, counted from 0.
        predicted: what was predicted, in words.
        truth: what is true, in words.
        values: value of every field.
        effects: what the prediction gains by knowing each field: log-odds, or the unit of a number.
        refinement: its dependencies; None for a model without.
    """

    why: str
    number: int
    predicted: str
    truth: str
    values: tuple[str, ...]
    effects: tuple[float, ...]
    refinement: RefinementFacts | None


@dataclass(frozen=True, kw_only=True)
class MeasuredFacts:
    """How good the model is on rows with known targets.

    Attributes:
        rows: which rows they are, in words.
        n_rows: their number.
        n_sampled: how many of them intervals, curves and explanations were taken from.
        metrics: each with its interval.
        base_rate: the same metrics of always predicting the base rate.
        base_of: the rows whose base rate that is, in words.
        gain: how much lower the loss is than that of the base rate, by rows; None where it was not measured.
        calibration: predicted against observed, by rising prediction.
        scores: how predictions are spread in each class.
        importance: what shuffling a field costs.
        examples: rows explained.
    """

    rows: str
    n_rows: int
    n_sampled: int
    metrics: dict[str, Interval]
    base_rate: dict[str, float]
    base_of: str
    gain: Interval | None
    calibration: tuple[CalibrationPoint, ...]
    scores: Histogram | None
    importance: ImportanceFacts | None
    examples: tuple[RowFacts, ...]


@dataclass(frozen=True, kw_only=True)
class DependencyFacts:
    """W(0): one tuple a source, in the order of the fields."""

    fields: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything about a run.

    Attributes:
        made: date and time.
        training: what was trained on what.
        data: the fields.
        history: the evaluations of the training, in order.
        measured: how good the model is.
        dependencies: W(0); None for a model without dependencies.
    """

    made: str
    training: TrainingFacts
    data: DataFacts
    history: tuple[Evaluation, ...]
    measured: MeasuredFacts
    dependencies: DependencyFacts | None

    def to_json(self) -> dict[str, Any]:
        """Plain values for `from_json`."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Report:
        """Read what `to_json` gave.

        Raises:
            UserError: for numbers of another format, or altered ones.
        """
        found = values.get("format")
        if found != FORMAT:
            raise UserError(f"the report has format {found}, and this fielddep reads format {FORMAT}. {AGAIN}")
        try:
            report: Report = decode({key: value for key, value in values.items() if key != "format"}, cls, "a report")
        except ConfigError as error:
            raise UserError(f"the report is incomplete or was changed ({error}). {AGAIN}") from None
        return report


def six_digits(values: Iterable[float]) -> list[float]:
    """Numbers to store: more digits than a screen can show, and a third of the file.

    Example:
        >>> six_digits([1 / 3, 1234567.0])
        [0.333333, 1234570.0]
    """
    return [float(f"{value:.6g}") for value in values]

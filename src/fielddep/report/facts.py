"""The numbers of a report: collected by `data` and `measured`, combined by `build`, drawn by `page`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fielddep.config.decode import decode
from fielddep.errors import ConfigError, UserError
from fielddep.report.intervals import Interval
from fielddep.training.checkpoint import Evaluation

FORMAT = 3
ADVICE = "Give the table to measure the model again"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting, as text."""

    path: str
    value: str
    default: str


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """What was trained on what."""

    run: str  # folder of the run, as it was given
    bundle: str  # checksum of the model, which shows whether another one replaced it
    source: str  # name of the table or store
    n_rows: int
    parts: dict[str, int]  # rows of train, validation and test, if known
    split: str  # how the rows were split, in words
    target: str
    task: str
    classes: tuple[str, ...]
    base: tuple[float, ...]  # logits that predict the base rate of the training rows; empty if unknown
    model: str
    n_parameters: int
    n_ids: int  # ids over all fields and crosses, including those for missing and rare values
    crosses: tuple[str, ...]
    changed: tuple[Setting, ...]  # settings given by the user that differ from their defaults
    decided: tuple[Setting, ...]  # settings chosen from the data
    versions: tuple[tuple[str, str], ...]  # names and versions of the software and the platform
    command: str


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """One field."""

    name: str
    kind: str  # category, number, ..., in words
    n_values: int | None  # values or bins with an id of their own; None for a number that is not binned
    missing: float  # share of training rows without a value
    rare: float  # share of training rows whose value is too rare for an id of its own
    unknown: float  # share of measured rows with a rare or unseen value; missing is unseen if training had no gaps
    frequent: tuple[tuple[str, float], ...]  # the most frequent values and their shares of training rows
    example: str | None  # a typical value of its column, to try a prediction with
    column: str = ""  # the column that it is read from; reports of older runs have none, and it is the name


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """The fields, and what deserves attention."""

    fields: tuple[FieldFacts, ...]
    skipped: tuple[tuple[str, str], ...]  # columns from which nothing can be learned, with the reason
    leaks: tuple[str, ...]  # fields that alone determine the target
    warnings: tuple[tuple[str, str], ...]  # field and warning; the field is empty if the warning concerns the table


@dataclass(frozen=True, kw_only=True)
class CalibrationPoint:
    """Rows with similar predictions: mean prediction, mean truth with its interval, and total weight."""

    predicted: float
    observed: float
    low: float
    high: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Distribution of predictions: the name of every group of rows, and its share of rows in each bin."""

    edges: tuple[float, ...]
    shares: tuple[tuple[str, tuple[float, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class Quality:
    """How well one class is recognised; a number that would divide by zero is None."""

    precision: float | None  # share of the rows predicted to have the class that do have it
    recall: float | None  # share of the rows with the class that are predicted to have it
    f1: float | None  # harmonic mean of precision and recall

    @classmethod
    def of(cls, right: float, *, predicted: float, actual: float) -> Quality:
        """From the weights of the rows predicted rightly, predicted, and with the class.

        Example:
            >>> Quality.of(3, predicted=4, actual=6)
            Quality(precision=0.75, recall=0.5, f1=0.6)
        """
        return cls(
            precision=float(right / predicted) if predicted > 0 else None,
            recall=float(right / actual) if actual > 0 else None,
            f1=float(2 * right / (predicted + actual)) if predicted + actual > 0 else None,
        )


@dataclass(frozen=True, kw_only=True)
class ThresholdPoint:
    """Rows with at least this probability count as positive: their weight in the positive class and in the other."""

    threshold: float
    caught: float
    false: float


@dataclass(frozen=True, kw_only=True)
class ThresholdFacts:
    """Decisions of two classes by rising threshold; both curves and every confusion matrix follow from them."""

    positive: float  # total weight of the rows of the positive class
    negative: float  # total weight of the others
    points: tuple[ThresholdPoint, ...]

    def quality(self, point: ThresholdPoint) -> Quality:
        """Precision, recall and F1 of the positive class at a threshold."""
        return Quality.of(point.caught, predicted=point.caught + point.false, actual=self.positive)


@dataclass(frozen=True, kw_only=True)
class ClassFacts:
    """One of several classes, if the likeliest class is predicted."""

    name: str
    weight: float  # total weight of its rows; their number without weights
    quality: Quality


@dataclass(frozen=True, kw_only=True)
class ImportanceFacts:
    """Permutation importance: name, mean and standard deviation per field; the most important first."""

    metric: str  # the metric that gets worse
    n_rows: int
    n_repeats: int  # shuffles of each field
    fields: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, kw_only=True)
class RefinementEffect:
    """What the refinement does to the predictions, compared with the same model without its steps."""

    n_rows: int  # rows compared
    change: float  # mean distance of the predictions: of probabilities, or in the unit of the target
    loss: float
    loss_without: float


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """One step of the refinement of a row."""

    loss: float  # dependency loss, summed over all fields
    weights: tuple[float, ...]  # mu(t)/lambda of every field
    w: tuple[tuple[float, ...], ...]  # W(t) between the fields shown, one tuple per source


@dataclass(frozen=True, kw_only=True)
class RefinementFacts:
    """The refinement of a row."""

    dependencies: tuple[tuple[float, ...], ...]  # mu(T)/lambda * W(T), one tuple per source
    shown: tuple[int, ...]  # positions of the fields shown, those with the strongest dependencies
    steps: tuple[StepFacts, ...]  # the steps from 0 to T

    @property
    def weights(self) -> tuple[float, ...]:
        """mu(T)/lambda of every field."""
        return self.steps[-1].weights


@dataclass(frozen=True, kw_only=True)
class SeenFacts:
    """What training rows with the same values did, as a sentence, and how much it raised the prediction."""

    text: str
    effect: float  # a probability, or the unit of the target


@dataclass(frozen=True, kw_only=True)
class EvidenceFacts:
    """How much training rows with the same values move predictions: name and mean absolute effect per combination."""

    n_rows: int
    n_combinations: int
    combinations: tuple[tuple[str, float], ...]  # the strongest, which come first


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """One row explained; prediction, truth and values are in words."""

    why: str  # why it was chosen: right, wrong, unsure or random
    number: int  # its position among the measured rows, counted from 0
    predicted: str
    truth: str
    values: tuple[str, ...]
    effects: tuple[float, ...]  # how much each field raises the prediction; log-odds, or the unit of the target
    refinement: RefinementFacts | None  # its dependencies; None for a model without them
    seen: tuple[SeenFacts, ...] = ()  # the strongest first; empty for a model without evidence, and in older reports
    members: str = ""  # what the members of a blend say, in words; empty for any other model


@dataclass(frozen=True, kw_only=True)
class MeasuredFacts:
    """How good the model is on rows with known targets."""

    rows: str  # which rows were measured, in words
    n_rows: int  # number of these rows
    n_sampled: int  # rows sampled for intervals, curves and explanations
    metrics: dict[str, Interval]
    base_rate: dict[str, float]  # the same metrics if the base rate is always predicted
    base_of: str  # the rows that have this base rate, in words
    gain: Interval | None  # how much lower the loss is than that of the base rate; None if not measured
    calibration: tuple[CalibrationPoint, ...]  # by ascending prediction
    scores: Histogram | None
    importance: ImportanceFacts | None
    examples: tuple[RowFacts, ...]  # explained rows
    thresholds: ThresholdFacts | None = None  # for two classes; absent from older reports, like what follows
    classes: tuple[ClassFacts, ...] = ()  # for several classes, the most frequent first
    refinement: RefinementEffect | None = None  # None for a model that does not refine
    evidence: EvidenceFacts | None = None  # None for a model without evidence


@dataclass(frozen=True, kw_only=True)
class DependencyFacts:
    """W(0): one tuple per source, in the order of the fields."""

    fields: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All numbers of a report; `dependencies` is None for a model without them."""

    made: str
    training: TrainingFacts
    data: DataFacts
    history: tuple[Evaluation, ...]
    measured: MeasuredFacts
    dependencies: DependencyFacts | None

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Report:
        """The report that `to_json` described.

        Raises:
            UserError: if the numbers have another format, or were changed.
        """
        found = values.get("format")
        if found != FORMAT:
            raise UserError(f"the report has format {found}, but this fielddep reads format {FORMAT}. {ADVICE}")
        try:
            report: Report = decode({key: value for key, value in values.items() if key != "format"}, cls, "a report")
        except ConfigError as error:
            raise UserError(f"the report is incomplete or was changed ({error}). {ADVICE}") from None
        return report


def six_digits(values: Iterable[float]) -> list[float]:
    """Numbers with more digits than a screen can show, in a third of the space.

    Example:
        >>> six_digits([1 / 3, 1234567.0])
        [0.333333, 1234570.0]
    """
    return [float(f"{value:.6g}") for value in values]

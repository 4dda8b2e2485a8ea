"""Records of a search: what Optuna's file says of every trial, in the order of their ends, and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna

SETTINGS, METRICS, SECONDS, REASON = "settings", "metrics", "seconds", "reason"
"""Names under which facts of a trial stand in Optuna's file."""
LOST = "lost"
"""Name under which Optuna's file has the trials that an interrupt or a kill ended, each with its place among all."""
KILLED = "the process was killed while it trained, more than once; perhaps for want of memory"
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial that is over.

    Attributes:
        number: its place among the trials of the search, from 0 on; trial 0 has the defaults.
        state: complete, pruned or failed.
        loss: lowest validation loss; None for a failed trial.
        metrics: validation metrics beside it.
        seconds: wall time.
        settings: dotted settings that it changed.
        reason: why it was pruned, cut off or failed.
    """

    number: int
    state: str
    loss: float | None
    seconds: float
    settings: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)
    reason: str = ""


def trial_records(study: optuna.Study) -> list[TrialRecord]:
    """The trials that are over; those that an interrupt or a kill ended are left out, as they are run again."""
    lost = {number for number, _ in study.user_attrs.get(LOST, [])}
    ended = [
        trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished() and trial.number not in lost
    ]
    return [_record(number, trial) for number, trial in enumerate(ended)]


def _record(number: int, trial: optuna.trial.FrozenTrial) -> TrialRecord:
    facts = trial.user_attrs
    states = {"COMPLETE": COMPLETE, "PRUNED": PRUNED, "FAIL": FAILED}
    return TrialRecord(
        number=number,
        state=states[trial.state.name],
        loss=facts.get(METRICS, {}).get("loss"),
        seconds=facts.get(SECONDS, 0.0),
        settings=facts.get(SETTINGS, {}),
        metrics=facts.get(METRICS, {}),
        reason=facts.get(REASON, "" if SECONDS in facts else KILLED),
    )


def best_record(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The complete trial of the lowest loss, the first of equals; None where no trial is complete."""
    complete = [record for record in records if record.state == COMPLETE and record.loss is not None]
    return min(complete, key=lambda record: record.loss or 0.0, default=None)


def trials_csv(records: Sequence[TrialRecord]) -> str:
    """One line a trial: how it ended, then its settings; an empty cell means the default."""
    metrics = list(dict.fromkeys(name for record in records for name in record.metrics if name != "loss"))
    settings = list(dict.fromkeys(path for record in records for path in record.settings))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "loss", *metrics, "seconds", "reason", *settings])
    for record in records:
        figures = [record.metrics.get(name) for name in metrics]
        values = [_cell(record.settings.get(path)) for path in settings]
        facts = [record.number, record.state, record.loss]
        writer.writerow([*facts, *figures, round(record.seconds, 1), record.reason, *values])
    return text.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, bool)) else value

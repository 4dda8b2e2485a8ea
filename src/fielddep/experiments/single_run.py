"""One run of an experiment, in a process of its own: `python -m fielddep.experiments.single_run JOB`, a job as JSON.

A process of its own has a peak memory of its own, and a run that is killed takes no other with it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fielddep.errors import UserError
from fielddep.experiments.processes import end_with_parent
from fielddep.experiments.results import RunResult
from fielddep.experiments.tree_configs import TREE_CONFIGS
from fielddep.files import write_json

if TYPE_CHECKING:
    from fielddep.experiments.trained import Trained
    from fielddep.prepared import TrainingData

MEASURED_PARTS = ("validation", "test")
FAILED_SUFFIX = ".failed.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one run is to do.

    Attributes:
        dataset: name of the data.
        contender: name of the model.
        seed: seed of the training.
        settings: name of the settings ("tuned", "default").
        config: nested settings that are not defaults.
        store: folder of the rows.
        sha256: which store it must be.
        result: file of the result.
        threads: CPU threads.
        device: torch device of the networks.
        commit: version of the source.
    """

    dataset: str
    contender: str
    seed: int
    settings: str
    config: Mapping[str, Mapping[str, Any]]
    store: str
    sha256: str
    result: str
    threads: int | None = None
    device: str = "cpu"
    commit: str | None = None

    MODULE: ClassVar[str] = "fielddep.experiments.single_run"
    """The program that does such a job."""

    @property
    def identity(self) -> dict[str, Any]:
        """What a result must have been made from to be that of this job."""
        return {"config": json.loads(json.dumps(self.config)), "settings": self.settings, "store": self.sha256}

    def failed(self, reason: str) -> RunResult:
        """The result of a run that came to nothing."""
        return dataclasses.replace(self._blank(), error=reason)

    def _blank(self) -> RunResult:
        return RunResult(
            dataset=self.dataset,
            model=self.contender,
            seed=self.seed,
            settings=self.settings,
            threads=self.threads,
            device="cpu" if self.contender in TREE_CONFIGS else self.device,
            commit=self.commit,
        )

    def save(self, result: RunResult) -> None:
        """Write a result beside what it was made from; a failure never takes the place of a finished result."""
        path, failure = Path(self.result), self._failure_file
        before = read_saved(path)
        keeps = result.error is not None and before is not None and before[1].error is None
        content = {"made_from": self.identity, "result": json.loads(result.to_json())}
        write_json(failure if keeps else path, content)
        if not keeps:
            failure.unlink(missing_ok=True)

    def saved(self) -> RunResult | None:
        """The result that is there; None where there is none, or one of other settings or rows."""
        for path in (Path(self.result), self._failure_file):
            found = read_saved(path)
            if found is not None and found[0] == self.identity:
                return found[1]
        return None

    @property
    def _failure_file(self) -> Path:
        """Where a failure stands while a finished result, of other settings or rows, has its place."""
        return Path(self.result).with_suffix(FAILED_SUFFIX)

    def run(self) -> RunResult:
        """Train, and measure.

        Raises:
            UserError: the rows or the settings cannot be used.
        """
        return self.measure(*self.train())

    def train(self) -> tuple[TrainingData, Trained]:
        """The rows, and a model trained on them."""
        # Only here, so that whoever makes a job need not wait for torch.
        import torch

        from fielddep.data.store.store import Store
        from fielddep.experiments.contender_training import train_contender
        from fielddep.experiments.contenders import config_of
        from fielddep.prepared import prepare_store

        own = {"train.seed": self.seed, "train.threads": self.threads, "train.device": self.device}
        config = config_of(self.config).replace(own)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        store = Store.open(self.store)
        if store.sha256 != self.sha256:
            raise UserError(f"the store {self.store} was replaced since the first run; begin anew in another folder")
        data = prepare_store(store, config)
        return data, train_contender(data)

    def measure(self, data: TrainingData, trained: Trained) -> RunResult:
        """Metrics on validation and test rows, and what the run cost."""
        from fielddep.experiments.trained import measured

        parts = {name: measured(trained.logits, data.target, data.parts[name]) for name in MEASURED_PARTS}
        test = parts["test"]
        return dataclasses.replace(
            self._blank(),
            metrics={name: without_loss(part.metrics) for name, part in parts.items()},
            n_parameters=trained.n_parameters,
            train_seconds=trained.seconds,
            rows_per_s=trained.rows_per_s,
            peak_mb=peak_mb(),
            predict_seconds=test.seconds,
            predict_rows_per_s=test.n_rows / test.seconds,
        )


def read_saved(path: Path) -> tuple[dict[str, Any], RunResult] | None:
    """What a result was made from, and the result; None where there is none, or the file is damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return dict(found["made_from"]), RunResult.from_json(json.dumps(found["result"]))
    except (OSError, ValueError, KeyError, TypeError):  # UserError is a ValueError
        return None


def without_loss(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without the loss, which is one of the others."""
    return {name: value for name, value in metrics.items() if name != "loss"}


def peak_mb() -> float:
    """Largest resident memory of this process so far, in millions of bytes."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Of this program alone; what `getrusage` tells includes the process that started it.
        lines = dict(line.split(":", 1) for line in status.read_text("utf-8").splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e6
    import resource  # there is none on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def command(job: Job) -> list[str]:
    """The command that does a job."""
    return [sys.executable, "-m", job.MODULE, json.dumps(asdict(job))]


def main(kind: type[Job] = Job) -> None:
    """Do the job of the command line and save its result, or why there is none."""
    from fielddep.experiments.trial_loop import reason_of

    end_with_parent()
    job = kind(**json.loads(sys.argv[1]))
    try:
        result = job.run()
    except Exception as error:
        traceback.print_exc()
        result = job.failed(reason_of(error))
    job.save(result)


if __name__ == "__main__":
    main()

"""How long an experiment still takes, from the runs that have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


class TimeLeft:
    """Tells once, after the first runs, about how many seconds are left.

    A run is expected to take as long as those of the same model did, or as the mean of all models without one. With
    several runs to do per model, every model should have one first; else a third of all runs is enough.

    Args:
        models: model of every run to do, by title.
        n_jobs: runs at the same time.
        tell: is called with the seconds, unless nothing is left to do.
        clock: seconds that pass.
    """

    def __init__(
        self,
        models: Mapping[str, str],
        *,
        n_jobs: int,
        tell: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models, self.n_jobs, self.tell, self.clock = models, n_jobs, tell, clock
        n_models = len(set(models.values()))
        self.first_runs = n_models if n_models < len(models) else max(1, len(models) // 3)
        self._began: dict[str, float] = {}
        self._seconds: dict[str, list[float]] = {}
        self._ended: set[str] = set()

    def begin(self, title: str) -> None:
        """A run begins."""
        self._began[title] = self.clock()

    def end(self, title: str, *, counts: bool) -> None:
        """A run has ended; one that failed does not count, because it may have ended early."""
        self._ended.add(title)
        if counts and title in self._began:
            self._seconds.setdefault(self.models[title], []).append(self.clock() - self._began[title])
        left = self.seconds() if len(self._ended) == self.first_runs else None
        if left is not None:
            self.tell(left)

    def seconds(self) -> float | None:
        """The estimate; None if nothing is left, or nothing is known yet."""
        waiting = [model for title, model in self.models.items() if title not in self._ended]
        known = [second for seconds in self._seconds.values() for second in seconds]
        if not waiting or not known:
            return None
        times = (self._seconds.get(model, known) for model in waiting)
        return sum(sum(seconds) / len(seconds) for seconds in times) / min(self.n_jobs, len(waiting))

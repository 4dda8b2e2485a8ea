"""Observers: every event is optional, and several observers see all of them in order."""

from __future__ import annotations

from fielddep.observer import JobResult, Observer, Observers


class Noting(Observer):
    def __init__(self, name: str, notes: list[tuple[object, ...]]) -> None:
        self.name, self.notes = name, notes

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self.notes.append((self.name, step, n_rows, loss))

    def on_job(self, title: str, result: JobResult | None) -> None:
        self.notes.append((self.name, title, result))


def test_several_observers_see_every_event_in_order() -> None:
    notes: list[tuple[object, ...]] = []
    observer = Observers(Noting("a", notes), Observer(), Noting("b", notes))
    failed = JobResult(state="failed", reason="no memory")
    observer.on_step(3, 100, 0.5)
    observer.on_end()
    observer.on_job("fm seed 0", failed)
    assert notes == [("a", 3, 100, 0.5), ("b", 3, 100, 0.5), ("a", "fm seed 0", failed), ("b", "fm seed 0", failed)]

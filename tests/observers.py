"""An observer of encodings for tests: it keeps what it hears, and may interfere."""

from __future__ import annotations

from collections.abc import Callable

from fielddep.observer import Observer


class StageWatch(Observer):
    """Keeps every stage with its rows and share.

    Args:
        act: called with the stage and its rows.
    """

    def __init__(self, act: Callable[[str, int], None] | None = None) -> None:
        self.seen: list[tuple[str, int, float | None]] = []
        self.act = act

    def on_stage(self, stage: str, n_rows: int, share: float | None) -> None:
        self.seen.append((stage, n_rows, share))
        if self.act is not None:
            self.act(stage, n_rows)

    def rows(self, stage: str) -> list[int]:
        """Rows at each event of a stage."""
        return [n_rows for name, n_rows, _ in self.seen if name == stage]

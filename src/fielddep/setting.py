"""What a setting is: a dataclass field that knows its documentation and range, and where a search may look for it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


def setting(
    default: Any, doc: str, *, at_least: float | None = None, above: float | None = None, below: float | None = None
) -> Any:
    """A dataclass field that knows its documentation and the range of its numbers."""
    metadata = {"doc": doc, "at_least": at_least, "above": above, "below": below}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Between:
    """A search takes any number from `low` to `high`; with `log`, every power of ten is as likely."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class OneOf:
    """A search takes one of these values."""

    values: tuple[Any, ...]


Space = Between | OneOf

"""Dataclasses of plain values to JSON and back, so that a report can be drawn again without its rows."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dictionaries, lists, numbers and texts of a dataclass, for `json`."""
    return dataclasses.asdict(value)


def six_digits(values: Iterable[float]) -> list[float]:
    """Numbers to store: more digits than a screen can show, and a third of the file.

    Example:
        >>> six_digits([1 / 3, 1234567.0])
        [0.333333, 1234570.0]
    """
    return [float(f"{value:.6g}") for value in values]


def from_plain(kind: type[T], value: Any) -> T:
    """A dataclass, or another value of its annotations, from what `to_plain` gave.

    Known are dataclasses, `tuple[X, ...]`, `dict[str, X]`, `X | None` and plain values.

    Raises:
        TypeError: the value does not fit; also KeyError.
    """
    built: T = _build(kind, value)
    return built


def _build(kind: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _build(next(k for k in inner if k is not types.NoneType), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"expected a list, given {type(value).__name__}")
        kinds = [inner[0]] * len(value) if inner[1:] == (Ellipsis,) else inner
        return tuple(_build(k, v) for k, v in zip(kinds, value, strict=True))
    if origin is dict:
        return {key: _build(inner[1], v) for key, v in _mapping(value).items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, _mapping(value))
    if kind is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, given {value!r}")
    return value


def _dataclass(kind: Any, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{item.name: _build(hints[item.name], values[item.name]) for item in dataclasses.fields(kind)})


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected named values, given {type(value).__name__}")
    return value

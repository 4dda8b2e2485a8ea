"""Decode: from text of the command line and plain values of TOML and JSON to typed values.

msgspec converts and checks types; here are the refusal of unknown keys, ranges, and messages that name the value given.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import typing
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from fielddep.errors import ConfigError
from fielddep.wording import did_you_mean, shorten

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


RENAMED = {"train.average": "train.average_decay"}
"""Settings of older files under their present names."""
MAX_SHOWN = 80
"""Characters of a refused value in a message."""
_PLAIN = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "none",
    "array": "a list",
    "object": "a table",
}


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read one `--set` argument, `section.key=value`; the value is TOML, or a plain word.

    Example:
        >>> parse_assignment("model.hidden=[64, 32]"), parse_assignment("train.optimizer=adam")
        (('model.hidden', [64, 32]), ('train.optimizer', 'adam'))
    """
    path, equals, raw = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"expected section.key=value, given {text!r}; for instance model.d_embed=20")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = {"none": None, "True": True, "False": False}.get(raw.strip(), raw.strip())
    return path.strip(), value


def decode(value: Any, kind: Any, path: str) -> Any:
    """A plain value of TOML, JSON or the command line as an annotation asks for it.

    Lists become tuples, integers may stand for floats, and named values become dataclasses.

    Args:
        value: the plain value.
        kind: an annotation, such as a dataclass, `int | None` or `tuple[str, ...]`.
        path: what the value is called.

    Raises:
        ConfigError: for an unknown key, with the nearest known one, or a value of another type.
    """
    entries = next((one for one in (kind, *typing.get_args(kind)) if typing.get_origin(one) is dict), None)
    if entries is not None and isinstance(value, Mapping):  # so that a message names the entry
        inner = typing.get_args(entries)[1]
        return {str(key): decode(entry, inner, f"{path}.{key}") for key, entry in value.items()}
    value = list(map(_own_number, value)) if isinstance(value, (list, tuple)) else _own_number(value)
    words = _words(kind)
    if value is None and "none" in words:  # `--set model.dependencies=none` arrives as None
        value = "none"
    _check_keys(value, kind, path)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), value, words, path) from None


def _own_number(value: Any) -> Any:
    """Python's number for one of numpy, which is slow to import."""
    is_numpys = "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic)
    return value.item() if is_numpys else value


def _refusal(reason: str, value: Any, words: list[str], path: str) -> ConfigError:
    """What msgspec says, with the value given and in the words of users."""
    place = re.search(r"at `\$(.*)`", reason)
    path += "" if place is None else place[1]
    wrong = re.match(r"Invalid enum value '(.*?)'", reason)
    if wrong:
        return ConfigError(f"{path} cannot be {wrong[1]!r}; {did_you_mean(wrong[1], words, what='its values')}")
    absent = re.match(r"Object missing required field `(\w+)`", reason)
    if absent:
        return ConfigError(f"{path} needs {absent[1]}; given {shorten(repr(value), MAX_SHOWN)}")
    expected = re.match(r"Expected `(.*?)`", reason)
    kinds = [_PLAIN.get(kind, kind) for kind in expected[1].split(" | ")] if expected else [reason]
    return ConfigError(f"{path} must be {' or '.join(kinds)}; given {shorten(repr(value), MAX_SHOWN)}")


def _words(kind: Any) -> list[str]:
    """All words that an annotation allows."""
    inner = typing.get_type_hints(kind).values() if dataclasses.is_dataclass(kind) else typing.get_args(kind)
    return list(inner) if typing.get_origin(kind) is Literal else [word for one in inner for word in _words(one)]


def _check_keys(value: Any, kind: Any, path: str) -> None:
    """Refuse keys that a dataclass does not have, which msgspec would drop."""
    if not _holds_dataclass(kind):
        return
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for key, inner in value.items() if isinstance(value, Mapping) else ():
            if key not in hints:
                raise ConfigError(f"{path} has no key {key!r}; {did_you_mean(key, hints, what='its keys')}")
            _check_keys(inner, hints[key], f"{path}.{key}")
        return
    parts = value if isinstance(value, list) else value.values() if typing.get_origin(kind) is dict else [value]
    for part in parts:
        for inner in typing.get_args(kind):
            _check_keys(part, inner, path)


@functools.cache
def _holds_dataclass(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or any(map(_holds_dataclass, typing.get_args(kind)))


def check_range(path: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Refuse a number of a setting that is out of range; a setting may hold one, several or one a field."""
    at_least, above, below = limits["at_least"], limits["above"], limits["below"]
    for number in _numbers(value):
        if at_least is not None and not number >= at_least:
            raise ConfigError(f"{path} must be at least {at_least:g}; given {number}")
        if above is not None and not number > above:
            raise ConfigError(f"{path} must be above {above:g}; given {number}")
        if below is not None and not number < below:
            raise ConfigError(f"{path} must be below {below:g}; given {number}")


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    values = value if isinstance(value, tuple) else (value,)
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]

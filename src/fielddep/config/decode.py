"""Decode: text from the command line and plain values from TOML and JSON become typed values.

msgspec converts and checks types. This module refuses unknown keys, checks ranges, and quotes values in errors.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
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
"""Current names of settings that older files have under another name."""
MAX_SHOWN = 80
"""Characters of a refused value in an error."""
_COMPARISONS = {"at_least": operator.ge, "above": operator.gt, "below": operator.lt}
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
    """Parse one `--set` argument, `section.key=value`; the value is TOML or a plain word.

    Example:
        >>> parse_assignment("model.hidden=[64, 32]"), parse_assignment("train.optimizer=adam")
        (('model.hidden', [64, 32]), ('train.optimizer', 'adam'))
    """
    path, equals, raw = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"expected section.key=value, such as model.d_embed=20; given {text!r}")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = {"none": None, "True": True, "False": False}.get(raw.strip(), raw.strip())
    return path.strip(), value


def decode(value: Any, kind: Any, path: str) -> Any:
    """Convert a plain value of TOML, JSON or the command line to an annotated type.

    Lists become tuples, mappings become dataclasses, integers are accepted as floats, and one text as a list of texts.

    Args:
        value: the plain value.
        kind: an annotation, such as a dataclass, `int | None` or `tuple[str, ...]`.
        path: name of the value, for errors.

    Raises:
        ConfigError: for an unknown key, with the nearest known one, or a value of another type.
    """
    entries = next((one for one in (kind, *typing.get_args(kind)) if typing.get_origin(one) is dict), None)
    if entries is not None and isinstance(value, Mapping):  # one by one, so that an error names the entry
        inner = typing.get_args(entries)[1]
        return {str(key): decode(entry, inner, f"{path}.{key}") for key, entry in value.items()}
    value = list(map(_python_number, value)) if isinstance(value, (list, tuple)) else _python_number(value)
    if isinstance(value, str) and tuple[str, ...] in (kind, *typing.get_args(kind)):
        value = [value]  # `--set data.exclude=Name`
    words = _words(kind)
    if value is None and "none" in words:  # `--set model.dependencies=none` arrives as None
        value = "none"
    _check_keys(value, kind, path)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), value, words, path) from None


def _python_number(value: Any) -> Any:
    """A numpy scalar as a Python number, without importing numpy, which is slow."""
    is_scalar = "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic)
    return value.item() if is_scalar else value


def _refusal(reason: str, value: Any, words: list[str], path: str) -> ConfigError:
    """The error of msgspec in the words of users, with the given value."""
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
    """Refuse keys that a dataclass does not have; msgspec would drop them."""
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
    """Refuse a setting with a number out of range; it may hold one number, several, or one per field."""
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
    for number in values:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        for key, holds in _COMPARISONS.items():
            if limits[key] is not None and not holds(number, limits[key]):
                raise ConfigError(f"{path} must be {key.replace('_', ' ')} {limits[key]:g}; given {number}")

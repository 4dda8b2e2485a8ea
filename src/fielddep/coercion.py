"""Coercion: from text of the command line and plain values of TOML to what the annotation of a setting asks for."""

from __future__ import annotations

import difflib
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from fielddep.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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


def coerce(value: Any, hint: Any, path: str) -> Any:
    """Check a value against an annotation; lists become tuples, integers may stand for floats, numpy's for Python's."""
    if "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic):  # it is slow to import
        value = value.item()
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in args:
            try:
                return coerce(value, option, path)
            except ConfigError:
                continue
        given = [option for option in args if option is not type(None)]
        if len(given) == 1 and typing.get_origin(given[0]) is Literal:
            return coerce(value, given[0], path)  # raises, with the nearest word
    elif hint is type(None):
        if value is None:
            return None
    elif origin is Literal:
        if value is None and "none" in args:  # `--set model.dependencies=none` arrives as None
            return "none"
        if value in args and not isinstance(value, bool):
            return value
        if all(isinstance(a, str) for a in args):
            near = difflib.get_close_matches(str(value), args, n=1)
            hint_text = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{path} is one of {', '.join(map(repr, args))}; given {value!r}{hint_text}")
    elif origin is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(coerce(v, args[0], path) for v in value)
    elif origin is dict:
        if isinstance(value, Mapping):
            return {str(k): coerce(v, args[1], f"{path}.{k}") for k, v in value.items()}
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{path} must be {describe(hint)}; given {value!r}")


def describe(hint: Any) -> str:
    """An annotation in words, for an error message."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(a) for a in args)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, args))
    if origin is tuple:
        return f"a list of {describe(args[0])}"
    if origin is dict:
        return f"a table of field name to {describe(args[1])}"
    plain = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        type(None): "none",
    }
    return plain.get(hint, str(hint))


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

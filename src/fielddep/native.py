"""The compiled module, `fielddep._native`, and whether to use it.

It is optional: everything that it does has a plain form in Python, which is its definition. Without a compiler at
installation, the plain forms do all the work. `FIELDDEP_KERNELS=plain` forces them; `FIELDDEP_KERNELS=native` fails if
the compiled module is missing.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Literal

from fielddep.errors import ConfigError

VARIABLE = "FIELDDEP_KERNELS"
SET_VARIABLE = "FIELDDEP_INSTRUCTION_SET"
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")
"""Instruction sets that the kernels are compiled for; one that the processor does not have falls back to baseline."""
Choice = Literal["auto", "plain", "native"]
_forced: list[Choice] = []


def choice() -> Choice:
    """The forms to use: those of `forced`, else of the environment, else "auto"."""
    if _forced:
        return _forced[-1]
    asked = os.environ.get(VARIABLE, "auto")
    if asked not in ("auto", "plain", "native"):
        raise ConfigError(f"expected {VARIABLE} to be auto, plain or native; given {asked!r}. Unset it for the default")
    return asked  # type: ignore[return-value]  # the line above leaves only these


@contextmanager
def forced(kind: Choice) -> Iterator[None]:
    """Use these forms within the `with` block, whatever the environment says."""
    _forced.append(kind)
    try:
        yield
    finally:
        _forced.pop()


def native() -> ModuleType | None:
    """The compiled module, or None if it is missing or not wanted.

    Raises:
        ConfigError: it is required but was not built.
    """
    asked = choice()
    if asked == "plain":
        return None
    module = _load()
    if module is None and asked == "native":
        raise ConfigError(
            f"{VARIABLE}=native needs the compiled kernels, but this installation has none. Install again with a C++ "
            "compiler available, or unset it"
        )
    return module


def name() -> str:
    """The form in use, for the record: plain, or the instruction set of the compiled kernels."""
    module = native()
    return "plain" if module is None else str(module.instruction_set())


@functools.cache
def _load() -> ModuleType | None:
    asked = os.environ.get(SET_VARIABLE)
    if asked is not None and asked not in INSTRUCTION_SETS:
        raise ConfigError(
            f"expected {SET_VARIABLE} to be one of {', '.join(INSTRUCTION_SETS)}; given {asked!r}. Unset it"
        )
    try:
        return importlib.import_module("fielddep._native")
    except ImportError:
        return None

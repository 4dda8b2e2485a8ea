"""Fast forms of the training step for the CPU, each equal to a plain form elsewhere up to float32 rounding.

    refinement      of `nn/refinement.py`
    network_input   of `MDL._logits`: from ids to the network's input, each pair matrix once per distinct value
    steps           of `training/optim.py`

The compiled module is optional: without a compiler at installation, on an accelerator, in float64, and while a model
is traced or compiled for export, the plain forms do the work. `FIELDDEP_KERNELS=plain` forces them;
`FIELDDEP_KERNELS=native` fails if the compiled module is missing.

Nothing here knows of models or training: tensors and numbers in, tensors out.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal

import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]  # public, but not in its __all__

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


def compiled() -> ModuleType:
    """The compiled module, once `usable` has found that there is one."""
    module = native()
    assert module is not None
    return module


def usable(*tensors: torch.Tensor) -> bool:
    """Whether the compiled forms can work on these tensors.

    They must be float32 (ids int64) on the CPU. A model that is traced, compiled or transformed (`torch.func`) uses the
    plain forms. So must second derivatives: `FIELDDEP_KERNELS=plain`.
    """
    if torch.jit.is_tracing() or torch.compiler.is_compiling() or _is_transformed():  # type: ignore[attr-defined,no-untyped-call]  # public, but not in its __all__
        return False
    fitting = all(t.device.type == "cpu" and t.dtype in (torch.float32, torch.int64) for t in tensors)
    return fitting and native() is not None


def _is_transformed() -> bool:
    """Whether a `torch.func` transform is active; torch has no public way to ask."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def call(function: Callable[..., Any], *given: object) -> Any:
    """Call a compiled function on tensors and other arguments.

    Tensors are passed as DLPack capsules. Otherwise the compiled module would call their `__dlpack__`, which is Python
    code, and a keyboard interrupt during that call would be lost.
    """
    return function(*[to_dlpack(value) if isinstance(value, torch.Tensor) else value for value in given])


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
        return importlib.import_module("fielddep.nn.kernels._native")
    except ImportError:
        return None

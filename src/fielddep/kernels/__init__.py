"""Fast forms of the training step for the CPU, each equal to a plain form elsewhere up to float32 rounding.

    refinement      beside `nn/refinement.py`
    network_input   beside `MDL._logits`: from ids to the network's input, each pair matrix once per distinct value
    steps           beside `training/optim.py`

The compiled module is optional: without a compiler at installation, on an accelerator, in float64, and while a model
is traced or compiled for export, the plain forms do the work. `FIELDDEP_KERNELS=plain` forces them,
`FIELDDEP_KERNELS=native` refuses to do without the compiled ones.

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
"""Those that the kernels are compiled for; one that the processor lacks becomes baseline."""
Choice = Literal["auto", "plain", "native"]
_forced: list[Choice] = []


def choice() -> Choice:
    """Which forms are asked for: by `forced`, else by the environment, else "auto"."""
    if _forced:
        return _forced[-1]
    asked = os.environ.get(VARIABLE, "auto")
    if asked not in ("auto", "plain", "native"):
        raise ConfigError(f"{VARIABLE} must be auto, plain or native; given {asked!r}; unset it for the default")
    return asked  # type: ignore[return-value]  # the line above leaves only these


@contextmanager
def forced(kind: Choice) -> Iterator[None]:
    """Within the block these forms are used, whatever the environment says."""
    _forced.append(kind)
    try:
        yield
    finally:
        _forced.pop()


def native() -> ModuleType | None:
    """The compiled module where it is there and wanted, else None.

    Raises:
        ConfigError: where it is demanded but was not built.
    """
    asked = choice()
    if asked == "plain":
        return None
    module = _load()
    if module is None and asked == "native":
        raise ConfigError(
            f"{VARIABLE}=native asks for the compiled kernels, but this installation has none; install again with a "
            "C++ compiler at hand, or unset it"
        )
    return module


def usable(*tensors: torch.Tensor) -> bool:
    """Whether the compiled forms can work on these tensors.

    They must be float32 (ids int64) on the CPU. A model that is traced, compiled or transformed (`torch.func`) takes
    the plain forms. Second derivatives need those too: `FIELDDEP_KERNELS=plain`.
    """
    if torch._C._get_tracing_state() is not None or torch.compiler.is_compiling():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    fitting = all(t.device.type == "cpu" and t.dtype in (torch.float32, torch.int64) for t in tensors)
    return fitting and native() is not None


def call(function: Callable[..., Any], *given: object) -> Any:
    """Call a compiled function on tensors and whatever else it takes.

    Tensors are handed over as DLPack capsules. Left to itself the compiled module would ask them by `__dlpack__`, which
    is Python code, and an interrupt of the user that falls into it would be lost.
    """
    return function(*[to_dlpack(value) if isinstance(value, torch.Tensor) else value for value in given])


def name() -> str:
    """What does the work here, for the record: plain, or the instruction set of the compiled kernels."""
    module = native()
    return "plain" if module is None else str(module.instruction_set())


@functools.cache
def _load() -> ModuleType | None:
    asked = os.environ.get(SET_VARIABLE)
    if asked is not None and asked not in INSTRUCTION_SETS:
        raise ConfigError(f"{SET_VARIABLE} must be one of {', '.join(INSTRUCTION_SETS)}; given {asked!r}; unset it")
    try:
        return importlib.import_module("fielddep.kernels._native")
    except ImportError:
        return None

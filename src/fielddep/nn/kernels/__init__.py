"""Fast forms of the training step for the CPU, each equal to a plain form elsewhere up to float32 rounding.

    refinement      of `nn/refinement.py`
    network_input   of `MDL._logits`: from ids to the network's input, each pair matrix once per distinct value
    gated_mlp       of `nn/direct.py`
    steps           of `training/optim.py`

The compiled module is optional (`native.py`): without it, on an accelerator, in float64, and while a model is traced or
compiled for export, the plain forms do the work.

Nothing here knows of models or training: tensors and numbers in, tensors out.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]  # public, but not in its __all__

from fielddep.native import INSTRUCTION_SETS, SET_VARIABLE, VARIABLE, Choice, choice, forced, name, native

__all__ = [
    "INSTRUCTION_SETS",
    "SET_VARIABLE",
    "VARIABLE",
    "Choice",
    "call",
    "choice",
    "compiled",
    "forced",
    "name",
    "native",
    "usable",
]


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
    """Call a compiled function on tensors, lists of tensors and other arguments.

    Tensors are passed as DLPack capsules. Otherwise the compiled module would call their `__dlpack__`, which is Python
    code, and a keyboard interrupt during that call would be lost.
    """
    return function(*[_passed(value) for value in given])


def _passed(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return to_dlpack(value)
    return [_passed(entry) for entry in value] if isinstance(value, list) else value

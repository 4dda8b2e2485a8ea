"""Which part of a training step takes how long.

The functions of the parts are wrapped by name in labelled sections of torch's profiler. A backward node belongs to the
part whose forward operation made it: the profiler gives both the same sequence number. Names that a version of the
library does not have are skipped, so the same code measures the plain and the compiled form.
"""

from __future__ import annotations

import importlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch.profiler import ProfilerActivity, profile, record_function

LABEL = "part:"
BACKWARD = "autograd::engine::evaluate_function"
WHOLE = "whole"
FUSED = "fused"
"""Gathering, refinement and interactions in one compiled function."""
WHERE = {
    "fielddep.nn.embedding:EmbeddingTable.forward": "gather",
    "fielddep.nn.refinement:Refinement.forward": "refine",
    "fielddep.nn.interactions:BilinearInteractions.forward": "interact",
    "fielddep.nn.mdl:look_up": "gather",
    "fielddep.nn.mdl:sum_of_fields": "gather",
    "fielddep.nn.mdl:network_input": FUSED,
    "torch.nn:Sequential.forward": "mlp",
    "fielddep.training.optim:Optimizer.step": "optimiser",
}
"""Functions and their parts. The only `Sequential` of a model is its network."""


@contextmanager
def labelled() -> Iterator[None]:
    """Label the functions of `WHERE` with their part."""
    patches = []
    for where, part in WHERE.items():
        module_name, _, path = where.partition(":")
        owner: Any = importlib.import_module(module_name)
        *outer, name = path.split(".")
        for step in outer:
            owner = getattr(owner, step, None)
        if hasattr(owner, name):
            patches.append(mock.patch.object(owner, name, _in_section(getattr(owner, name), part)))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def _in_section(function: Callable[..., Any], part: str) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with record_function(LABEL + part):
            return function(*arguments, **named)

    return wrapped


def section_seconds(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of each labelled part of some work, including its backward pass, and in total as `WHOLE`."""
    with labelled(), profile(activities=[ProfilerActivity.CPU]) as profiler, record_function(WHOLE):
        work()
    events = sorted((e for e in profiler.events() or () if e.name), key=lambda event: event.time_range.start)
    seconds: dict[str, float] = defaultdict(float)
    # The operation that makes a node is the last one before the sequence number passes that of the node.
    forward = itertools.takewhile(lambda event: not event.name.startswith(BACKWARD), events)
    part_of_node = {event.sequence_nr: _part_of(event) for event in forward}
    for event in events:
        if event.name == WHOLE or (event.name.startswith(LABEL) and _part_of(event.cpu_parent) is None):
            seconds[event.name.removeprefix(LABEL)] += event.cpu_time_total / 1e6
        elif event.name.startswith(BACKWARD) and event.sequence_nr >= 0:
            part = part_of_node.get(event.sequence_nr)
            if part is not None:
                seconds[part] += event.cpu_time_total / 1e6
    return dict(seconds)


def _part_of(event: Any) -> str | None:
    """The part of the outermost section around an event."""
    found = None
    while event is not None:
        if event.name.startswith(LABEL):
            found = event.name.removeprefix(LABEL)
        event = event.cpu_parent
    return found

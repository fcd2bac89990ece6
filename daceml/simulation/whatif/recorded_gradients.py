"""The gradients of a run from the shapes that the profiler recorded, if they are not given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.whatif.gradients import Gradient, Gradients

_ACCUMULATES = "torch::autograd::AccumulateGrad"  # once a step for each parameter, in the order of gradients
_BYTES = {"double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2}


def gradients_in(trace: Trace) -> Gradients | None:
    """The gradients that the run's last whole step accumulates; None where their shapes were not recorded.

    Names of parameters are not in a trace: gradients are numbered in the order in which they become ready.
    """
    events = trace.events
    found: dict[int, list[tuple[float, str]]] = {}
    steps = [
        (float(events.start_us[event]), float(events.start_us[event] + events.duration_us[event]))
        for event in events.of(EventKind.ANNOTATION, EventKind.OPERATOR).tolist()
        if trace.name_of(event).startswith("ProfilerStep#")
    ] or [(0.0, math.inf)]
    for event in events.of(EventKind.OPERATOR).tolist():
        if trace.name_of(event) != _ACCUMULATES:
            continue
        shape = _shape(events.details[event])
        begin_us = float(events.start_us[event])
        inside = [number for number, (since, until) in enumerate(steps) if since <= begin_us <= until]
        if shape is None:
            return None
        if inside:
            found.setdefault(inside[-1], []).append(shape)
    if not found or len({len(rows) for rows in found.values()}) > 1:  # a step is not recorded whole
        return None
    rows = tuple(
        Gradient(name=f"gradient {number}", layer="", size_bytes=size, ready=number, element=element)
        for number, (size, element) in enumerate(found[max(found)])
    )
    return Gradients(total_bytes=sum(row.size_bytes for row in rows), rows=rows)


def _shape(details: Mapping[str, Any]) -> tuple[float, str] | None:
    """Bytes of the gradient, and its element type."""
    dims, types = details.get("Input Dims"), details.get("Input type")
    if not (isinstance(dims, list) and isinstance(types, list) and dims and types):
        return None
    first = cast("list[Any]", dims)[0]
    element = cast("list[Any]", types)[0]
    if not isinstance(first, list) or element not in _BYTES:
        return None
    sizes = cast("list[Any]", first)
    if not all(type(size) is int and size > 0 for size in sizes):
        return None
    return float(math.prod(sizes) * _BYTES[element]), str(element)

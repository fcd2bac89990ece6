"""The number format that a kernel computes in, as its name tells, and kernels in another format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.whatif.kernel_classes import FP8, HALF, TF32
from daceml.simulation.whatif.work import computes

Precision = Literal["float32", "tf32", "half", "fp8"]


def precisions(graph: TaskGraph) -> dict[Precision, Mask]:
    """[n] of each format, the tasks that compute in it; what names none is float32."""
    fp8 = select(graph, name=FP8)
    half = select(graph, name=HALF) & ~fp8
    tf32 = select(graph, name=TF32) & ~half & ~fp8
    return {"fp8": fp8, "half": half, "tf32": tf32, "float32": ~(fp8 | half | tf32)}


def lacking(graph: TaskGraph, number_format: str) -> str | None:
    """Why the card of the run does not compute in a format; None if it does, or if that is unknown."""
    if graph.formats is None or number_format in graph.formats:
        return None
    known = f"; it has {', '.join(graph.formats)}" if graph.formats else ""
    return f"{graph.card} has no tensor cores for {number_format}{known}"


def scaled(
    graph: TaskGraph,
    mask: Mask,
    *,
    compute: Mapping[Precision, float],
    memory: Mapping[Precision, float],
    floor_us: float,
) -> TaskGraph:
    """The selected kernels faster by what their format and kind say; formats that are not named stay.

    Args:
        compute, memory: how many times as fast products, and everything else.
        floor_us: of each kernel, what does not get faster.
    """
    products = computes(graph)
    for kind, speedups in ((products, compute), (~products, memory)):
        for precision, computed in precisions(graph).items():
            if precision in speedups:
                graph = scale(graph, mask & kind & computed, 1.0 / speedups[precision], floor_us=floor_us)
    return graph


def share_of_products(graph: TaskGraph, mask: Mask, *precision: Precision) -> float:
    """Of the time that selected products take, the share in these formats; 0 where there are none."""
    products, known = mask & computes(graph), precisions(graph)
    total_us = graph.tasks.duration_us[products].sum()
    taken_us = sum(graph.tasks.duration_us[products & known[name]].sum() for name in precision)
    return float(taken_us / total_us) if total_us else 0.0

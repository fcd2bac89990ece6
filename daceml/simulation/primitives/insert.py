"""Put in kernels, or copies, with the calls that launch them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.primitives.edit import FIRST, NewEdge, NewTask, with_tasks
from daceml.simulation.task import EdgeKind, TaskKind

_LAUNCH_US = 5.0  # where the trace has no launch to learn from
_LATENCY_US = 5.0


@dataclass(frozen=True, kw_only=True)
class NewKernel:
    """A kernel to put in, with the call that launches it.

    Attributes:
        after: index of the task of a stream behind which it goes.
        launch_after: index of the task of a CPU thread behind which its launch goes.
        before, launch_before: indices in front of which they go, instead.
        launch_us, launch_gap_us: of the call, and what passes before it; None is the usual time.
        like: index of a task whose layer, operator, phase and step they have; None: the launch's neighbour.
    """

    name: str
    duration_us: float
    after: int | None = None
    launch_after: int | None = None
    before: int | None = None
    launch_before: int | None = None
    kind: TaskKind = TaskKind.KERNEL
    launch_us: float | None = None
    launch_gap_us: float | None = None
    size_bytes: float = float("nan")
    like: int | None = None


def insert_kernel(
    graph: TaskGraph,
    name: str,
    *,
    after: int,
    launch_after: int,
    duration_us: float,
    kind: TaskKind = TaskKind.KERNEL,
    launch_us: float | None = None,
    launch_gap_us: float | None = None,
    size_bytes: float = float("nan"),
) -> TaskGraph:
    """A kernel behind another one on its stream, and its launch behind a call on a thread.

    Args: as of `NewKernel`.
    Raises:
        WhatIfError: `after` is on no stream, or `launch_after` on no thread.
    """
    kernel = NewKernel(
        name=name, after=after, launch_after=launch_after, duration_us=duration_us, kind=kind,
        launch_us=launch_us, launch_gap_us=launch_gap_us, size_bytes=size_bytes,
    )  # fmt: skip
    return insert_kernels(graph, [kernel])


def insert_kernels(graph: TaskGraph, kernels: Sequence[NewKernel]) -> TaskGraph:
    """Several kernels with their launches; those that go to one place stand in this order.

    Raises:
        WhatIfError: a place is on no stream, or one of a launch on no thread.
    """
    tasks: list[NewTask] = []
    edges: list[NewEdge] = []
    launch_us, gap_us, latency_us = (
        usual_launch_us(graph),
        usual_launch_gap_us(graph),
        usual_latency_us(graph),
    )
    for kernel in kernels:
        after, stream = _place(graph, kernel.name, kernel.after, kernel.before, "stream")
        behind, thread = _place(graph, kernel.name, kernel.launch_after, kernel.launch_before, "cpu")
        near = kernel.launch_after if kernel.launch_before is None else kernel.launch_before
        like = near if kernel.like is None else kernel.like
        launch = NewTask(
            name=f"launch of {kernel.name}", kind=TaskKind.CALL, lane=thread, after=behind, like=like,
            duration_us=launch_us if kernel.launch_us is None else kernel.launch_us,
            gap_us=gap_us if kernel.launch_gap_us is None else kernel.launch_gap_us,
        )  # fmt: skip
        work = NewTask(
            name=kernel.name, kind=kernel.kind, lane=stream, after=after, like=like,
            duration_us=kernel.duration_us, size_bytes=kernel.size_bytes,
        )  # fmt: skip
        edges.append((~len(tasks), ~(len(tasks) + 1), latency_us, True, EdgeKind.LAUNCH))
        tasks += [launch, work]
    return with_tasks(graph, tasks, edges)


def _place(
    graph: TaskGraph, name: str, after: int | None, before: int | None, kind_of_lane: str
) -> tuple[int, int]:
    """The task behind which something goes, or FIRST, and its lane."""
    index = after if before is None else before
    if index is None or not 0 <= index < len(graph):
        raise WhatIfError(f"{name!r} has no place: {index}", fix="give the index of a task of the graph")
    lane = int(graph.tasks.lane[index])
    if graph.lanes[lane].kind != kind_of_lane:
        raise WhatIfError(
            f"{name!r} cannot go next to {graph.name_of(index)!r}, which is on {graph.lanes[lane].name!r}",
            fix="a kernel goes behind work of a stream, its launch behind a call of a thread",
        )
    if before is not None:
        previous = int(graph.structure.before[before])
        return (FIRST if previous < 0 else previous), lane
    return index, lane


def usual_launch_us(graph: TaskGraph) -> float:
    """The median duration of calls that launch one kernel."""
    single = np.flatnonzero(_single_launches(graph))
    return float(np.median(graph.tasks.duration_us[single])) if len(single) else _LAUNCH_US


def usual_launch_gap_us(graph: TaskGraph) -> float:
    """The median time that passes on a thread before a call that launches one kernel; 0 without any."""
    single = np.flatnonzero(_single_launches(graph))
    return float(np.median(graph.tasks.gap_us[single])) if len(single) else 0.0


def usual_latency_us(graph: TaskGraph) -> float:
    """The median time from the start of a call to the earliest start of its kernel."""
    lags = graph.edges.lag_us[graph.edges.kind == EdgeKind.LAUNCH]
    return float(np.median(lags)) if len(lags) else _LATENCY_US


def _single_launches(graph: TaskGraph) -> Mask:
    sources = graph.edges.source[graph.edges.kind == EdgeKind.LAUNCH]
    return np.bincount(sources, minlength=len(graph)) == 1

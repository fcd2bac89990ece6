"""Put in a kernel, or a copy, with the call that launches it."""

from __future__ import annotations

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.edit import NewTask, with_tasks
from daceml.simulation.task import EdgeKind, TaskKind

_LAUNCH_US = 5.0  # where the trace has no launch to learn from
_LATENCY_US = 5.0


def insert_kernel(
    graph: TaskGraph,
    name: str,
    *,
    after: int,
    launch_after: int,
    duration_us: float,
    kind: TaskKind = TaskKind.KERNEL,
    launch_us: float | None = None,
    size_bytes: float = float("nan"),
) -> TaskGraph:
    """A kernel behind another one on its stream, and its launch behind a call on a thread.

    Args:
        after: index of a task of a stream.
        launch_after: index of a task of a CPU thread.
        duration_us: of the kernel.
        launch_us: of the call; None takes what launches in this graph usually take.
    Raises:
        WhatIfError: `after` is on no stream, or `launch_after` on no thread.
    """
    stream, thread = int(graph.tasks.lane[after]), int(graph.tasks.lane[launch_after])
    for index, lane, kind_of_lane in ((after, stream, "stream"), (launch_after, thread, "cpu")):
        if graph.lanes[lane].kind != kind_of_lane:
            raise WhatIfError(
                f"{name!r} cannot go behind {graph.name_of(index)!r}, which is on {graph.lanes[lane].name!r}",
                fix="a kernel goes behind work of a stream, its launch behind a call of a thread",
            )
    launch, kernel = ~0, ~1
    tasks = [
        NewTask(
            name=f"launch of {name}", kind=TaskKind.CALL, lane=thread, after=launch_after, like=launch_after,
            duration_us=usual_launch_us(graph) if launch_us is None else launch_us,
        ),
        NewTask(
            name=name, kind=kind, lane=stream, after=after, like=launch_after, duration_us=duration_us,
            size_bytes=size_bytes,
        ),
    ]  # fmt: skip
    return with_tasks(graph, tasks, [(launch, kernel, usual_latency_us(graph), True, EdgeKind.LAUNCH)])


def usual_launch_us(graph: TaskGraph) -> float:
    """The median duration of calls that launch one kernel."""
    sources = graph.edges.source[graph.edges.kind == EdgeKind.LAUNCH]
    single = np.flatnonzero(np.bincount(sources, minlength=len(graph)) == 1)
    return float(np.median(graph.tasks.duration_us[single])) if len(single) else _LAUNCH_US


def usual_latency_us(graph: TaskGraph) -> float:
    """The median time from the start of a call to the earliest start of its kernel."""
    lags = graph.edges.lag_us[graph.edges.kind == EdgeKind.LAUNCH]
    return float(np.median(lags)) if len(lags) else _LATENCY_US

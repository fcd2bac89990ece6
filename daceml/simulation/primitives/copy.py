"""Put in copies between host and device, on a stream of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from daceml.errors import WhatIfError
from daceml.simulation.graph import NOTHING, TaskGraph
from daceml.simulation.primitives.edit import FIRST, NewEdge, NewTask, with_tasks
from daceml.simulation.primitives.insert import usual_latency_us, usual_launch_gap_us, usual_launch_us
from daceml.simulation.task import EdgeKind, Lane, TaskKind

_LATENCY_US = 8.0  # a small cudaMemcpyAsync from pinned memory over PCIe, by the traces that we have


@dataclass(frozen=True, kw_only=True)
class NewCopy:
    """A copy to put in.

    Attributes:
        source: index of the task of a stream behind whose end it starts.
        target: index of the task of a stream that waits for it; None where nobody does.
        launch_before: index of the call in front of which it is launched; None is right behind the launch of
            `source`.
    """

    name: str
    size_bytes: float
    direction: Literal["to host", "to device"]
    source: int | None = None
    target: int | None = None
    launch_before: int | None = None


def insert_copies(
    graph: TaskGraph, copies: Sequence[NewCopy], *, stream: int | Lane, bytes_per_s: float
) -> TaskGraph:
    """Asynchronous copies of pinned memory, one behind the other on a copy stream, each with its launch.

    Args:
        copies: as the stream shall run them.
        stream: number of one that exists, or a new one.
        bytes_per_s: that the link carries in this direction.
    Raises:
        WhatIfError: bytes or bytes/s are not above zero, or there is no call beside which to launch.
    """
    if not 0 < bytes_per_s < float("inf"):
        raise WhatIfError(f"a link of {bytes_per_s} bytes/s copies nothing", fix="give a rate above zero")
    lanes = (stream,) if isinstance(stream, Lane) else ()
    number = stream if isinstance(stream, int) else len(graph.lanes)
    tasks: list[NewTask] = []
    edges: list[NewEdge] = []
    launches = _launches(graph)
    launch_us, gap_us, latency_us = (
        usual_launch_us(graph),
        usual_launch_gap_us(graph),
        usual_latency_us(graph),
    )
    for copy in copies:
        if not 0 <= copy.size_bytes < float("inf"):
            raise WhatIfError(f"{copy.name!r} copies {copy.size_bytes} bytes", fix="give 0 bytes or more")
        beside, behind = _launch_place(graph, copy, launches)
        call, work = len(tasks), len(tasks) + 1
        tasks += [
            NewTask(
                name=f"launch of {copy.name}", kind=TaskKind.CALL, lane=int(graph.tasks.lane[beside]),
                after=behind, like=beside, duration_us=launch_us, gap_us=gap_us,
            ),
            NewTask(
                name=copy.name, kind=TaskKind.COPY, lane=number, like=beside, size_bytes=copy.size_bytes,
                duration_us=_LATENCY_US + copy.size_bytes / bytes_per_s * 1e6,
            ),
        ]  # fmt: skip
        edges.append((~call, ~work, latency_us, True, EdgeKind.LAUNCH))
        if copy.source is not None:
            edges.append((copy.source, ~work, 0.0, False, EdgeKind.STREAM_WAIT))
        if copy.target is not None:
            edges.append((~work, copy.target, 0.0, False, EdgeKind.STREAM_WAIT))
    return with_tasks(graph, tasks, edges, lanes=lanes)


def insert_copy(graph: TaskGraph, copy: NewCopy, *, stream: int | Lane, bytes_per_s: float) -> TaskGraph:
    """One copy; `insert_copies` says how."""
    return insert_copies(graph, [copy], stream=stream, bytes_per_s=bytes_per_s)


def copy_stream(graph: TaskGraph, name: str, *, like: int) -> Lane:
    """A new stream of the device that runs the task `like`."""
    return Lane(kind="stream", name=name, device=graph.lanes[int(graph.tasks.lane[like])].device)


def _launches(graph: TaskGraph) -> dict[int, int]:
    """Task of a device -> the call that launches it."""
    launch = graph.edges.kind == EdgeKind.LAUNCH
    return dict(zip(graph.edges.target[launch].tolist(), graph.edges.source[launch].tolist(), strict=True))


def _launch_place(graph: TaskGraph, copy: NewCopy, launches: dict[int, int]) -> tuple[int, int]:
    """The call beside which a copy is launched, and the task behind which its launch goes."""
    if copy.launch_before is not None:
        previous = int(graph.structure.before[copy.launch_before])
        return copy.launch_before, FIRST if previous < 0 else previous
    beside = NOTHING if copy.source is None else launches.get(copy.source, NOTHING)
    if beside == NOTHING:
        raise WhatIfError(
            f"the launch of {copy.name!r} is unknown",
            why="the task that it follows has no recorded launch",
            fix="give the call before which it is launched",
        )
    return beside, beside

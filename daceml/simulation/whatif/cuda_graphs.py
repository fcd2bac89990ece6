"""CUDA graphs: the launches of a step become one, and its kernels follow each other closely."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.engine import simulate
from daceml.simulation.graph import Floats, Ints, Mask, TaskGraph
from daceml.simulation.primitives.edit import NewEdge, NewTask, with_tasks, without
from daceml.simulation.primitives.insert import usual_latency_us
from daceml.simulation.primitives.select import select
from daceml.simulation.task import EdgeKind, Phase, TaskKind
from daceml.simulation.whatif.blocks import launch_of
from daceml.simulation.whatif.kernel_classes import HOST_COPY
from daceml.simulation.whatif.optimization import Estimate, Optimization

_APART = 0.1  # of the kernels of a step, beyond which a synchronisation cuts the region in two


@dataclass(frozen=True, kw_only=True)
class _Region:
    """What of a step one graph can hold.

    Attributes:
        kernels: by lane and place.
        cuts: calls in the midst of the chosen work that a graph cannot hold.
        inside: how much work the step has in the chosen phases.
    """

    kernels: Ints
    cuts: list[int]
    inside: int
    first_call: int


@dataclass(frozen=True, kw_only=True)
class CudaGraphs(Optimization):
    """Of each step, the work of the chosen phases between two synchronisations as one graph.

    Attributes:
        phases: of the step that are captured.
        launch_us: of the call that launches the graph; with each kernel it grows by `kernel_launch_us`.
        spacing_us: between two kernels.
        python_us: what the call takes on the CPU before it launches.
        dispatch_us: of a call and of the time before it, what the framework's dispatch takes at most. The
            rest is other work of the host, and stays.
    """

    option: ClassVar[str] = "cuda-graphs"
    title: ClassVar[str] = "CUDA graphs"
    source: ClassVar[str] = (
        "Gray, Getting Started with CUDA Graphs (NVIDIA, 2019);"
        " Constant Time Launch for Straight-Line CUDA Graphs (NVIDIA, 2024); dispatch: of 8 recorded training"
        " and inference runs, 99% of the time between two launches is below 54 to 331 us"
    )

    phases: tuple[Phase, ...] = (Phase.FORWARD, Phase.BACKWARD)
    launch_us: Estimate = Estimate(10.0, fast=5.0, slow=20.0)
    kernel_launch_us: Estimate = Estimate(0.05, fast=0.0, slow=0.3)
    spacing_us: Estimate = Estimate(1.3, fast=1.0, slow=2.0)
    python_us: Estimate = Estimate(20.0, fast=10.0, slow=60.0)
    dispatch_us: Estimate = Estimate(200.0, fast=350.0, slow=50.0)

    def check(self, graph: TaskGraph) -> str | None:
        chosen = self._chosen(graph)
        launches = launch_of(graph)
        if not (chosen & (launches >= 0)).any():
            return "no kernels that a call launched belong to the chosen phases"
        given = np.bincount(launches[launches >= 0], minlength=len(graph))
        if given[launches[chosen & (launches >= 0)]].mean() > 2:
            return "the run uses CUDA graphs already"
        for region in self._regions(graph, chosen):
            if region.cuts and region.inside - len(region.kernels) > _APART * region.inside:
                names = sorted({graph.name_of(cut) for cut in region.cuts})
                return (
                    f"the step synchronises inside the region: {', '.join(names[:3])} cuts its"
                    f" {region.inside} kernels, of which at most {len(region.kernels)} stand together"
                )
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        chosen = self._chosen(graph)
        launches = launch_of(graph)
        gone = np.zeros(len(graph), np.bool_)
        gap_us = graph.tasks.gap_us.copy()
        new: list[NewTask] = []
        edges: list[NewEdge] = []
        ahead: int | None = None  # the first work of the graph before
        latency_us = self.python_us.likely + usual_latency_us(graph)
        for region in self._regions(graph, chosen):
            kernels, first = region.kernels, region.first_call
            captured = np.zeros(len(graph), np.bool_)
            captured[kernels] = True
            near = graph.structure.before[kernels]
            inside = kernels[(near >= 0) & captured[near]]
            gap_us[inside] = np.minimum(gap_us[inside], self.spacing_us.likely)
            calls = self._calls(graph, launches[kernels])
            gone |= calls
            new.append(
                NewTask(
                    name="cudaGraphLaunch", kind=TaskKind.CALL, lane=int(graph.tasks.lane[first]),
                    after=first, like=first, operator="",
                    duration_us=self.python_us.likely
                    + self.launch_us.likely + self.kernel_launch_us.likely * len(kernels)
                    + self._other_work_us(graph, calls),
                )
            )  # fmt: skip
            call = ~(len(new) - 1)
            if ahead is not None:  # else the CPU would run ahead of the device without end
                edges.append((ahead, call, 0.0, True, EdgeKind.QUEUE))
            ahead = int(kernels[0])
            edges += [(call, int(kernel), latency_us, True, EdgeKind.LAUNCH) for kernel in kernels.tolist()]
        # the queue holds graphs, not their kernels
        known = graph.edges
        launched = np.zeros(len(graph), np.bool_)
        launched[[target for _, target, *_ in edges if target >= 0]] = True
        queued = (known.kind == EdgeKind.QUEUE) & launched[known.source]
        freed = dataclasses.replace(graph.with_times(gap_us=gap_us), edges=known.taken(~queued))
        placed = with_tasks(freed, new, edges)
        return without(placed, np.isin(placed.tasks.key, graph.tasks.key[gone]))

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            "a graph is launched once the one before it has begun",
            "inputs have one shape and are copied to one place at no cost",
            f"before each launch of the region {self.dispatch_us.likely:g} us at most are dispatch, which"
            " goes; the rest is other work of the host, and stays",
        )

    def _other_work_us(self, graph: TaskGraph, calls: Mask) -> float:
        """Of calls that go and the time before them, what is no dispatch."""
        follows = calls & (graph.structure.before >= 0)
        most_us = self.dispatch_us.likely
        gaps_us = np.maximum(graph.tasks.gap_us[follows] - most_us, 0.0)
        calls_us = np.maximum(graph.tasks.duration_us[calls] - most_us, 0.0)
        return float(gaps_us.sum() + calls_us.sum())

    def _chosen(self, graph: TaskGraph) -> Mask:
        kinds = (TaskKind.KERNEL, TaskKind.COPY, TaskKind.MEMSET, TaskKind.COLLECTIVE)
        host = select(graph, kind=TaskKind.COPY, name=HOST_COPY)
        return select(graph, kind=kinds, phase=self.phases) & ~host

    def _regions(self, graph: TaskGraph, chosen: Mask) -> list[_Region]:
        """Of each step, the most kernels that lie between two calls that cut."""
        launches, start_us = launch_of(graph), simulate(graph).start_us
        cuts = self._cuts(graph, launches)
        found: list[_Region] = []
        captured = chosen & (launches >= 0)
        for step in np.unique(graph.tasks.step[captured]).tolist():
            kernels = np.flatnonzero(captured & (graph.tasks.step == step))
            own = cuts[graph.tasks.step[cuts] == step]
            part = np.searchsorted(np.sort(start_us[own]), start_us[launches[kernels]])
            largest = kernels[part == np.bincount(part).argmax()]
            calls = launches[largest]
            cutting = [cut for cut in own.tolist() if self._between(start_us, cut, launches[kernels])]
            found.append(
                _Region(
                    kernels=largest, cuts=cutting, inside=len(kernels),
                    first_call=int(calls[np.argmin(start_us[calls])]),
                )
            )  # fmt: skip
        return found

    def _between(self, start_us: Floats, cut: int, calls: Ints) -> bool:
        return bool(start_us[calls].min() < start_us[cut] < start_us[calls].max())

    def _cuts(self, graph: TaskGraph, launches: Ints) -> Ints:
        """Calls that wait for the device, or copy from or to the host."""
        waits = graph.edges.target[graph.edges.kind == EdgeKind.SYNC]
        copies = launches[select(graph, kind=TaskKind.COPY, name=HOST_COPY)]
        cuts = np.unique(np.concatenate([waits, copies[copies >= 0]]))
        return cuts[graph.tasks.kind[cuts] == TaskKind.CALL]

    def _calls(self, graph: TaskGraph, launches: Ints) -> Mask:
        """What a region's threads call between its first launch and its last one, on each thread."""
        gone = np.zeros(len(graph), np.bool_)
        for lane in np.unique(graph.tasks.lane[launches]).tolist():
            members = graph.lane_members(lane)
            own = launches[graph.tasks.lane[launches] == lane]
            inside = members[(members >= own.min()) & (members <= own.max())]
            gone[inside[graph.tasks.kind[inside] == TaskKind.CALL]] = True
        return gone

"""Another device, link or processor: each kind of work faster by its own ratio."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.scale import scale, scale_gaps
from daceml.simulation.primitives.select import select
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.kernel_classes import HOST_COPY
from daceml.simulation.whatif.optimization import Estimate, Optimization, Side, other_side
from daceml.simulation.whatif.work import computes, work

_SAME = Estimate.known(1.0)


@dataclass(frozen=True, kw_only=True)
class FasterDevice(Optimization):
    """How many times as fast each part is; 1 leaves it as it is.

    Attributes:
        compute: products and convolutions.
        memory: everything else on a device, by the bandwidth of its memory as achieved.
        link: communication between devices.
        host_link: copies between host and device.
        cpu: calls, operators and what passes between them.
        floor_us: of each kernel, what does not get faster.
    """

    option: ClassVar[str] = "device"
    title: ClassVar[str] = "faster device"
    source: ClassVar[str] = (
        "Yu et al., Habitat (ATC '21), for kernels that stay the same; ratios are the caller's"
    )

    compute: Estimate = _SAME
    memory: Estimate = _SAME
    link: Estimate = _SAME
    host_link: Estimate = _SAME
    cpu: Estimate = _SAME
    floor_us: Estimate = Estimate(1.5, fast=0.0, slow=3.0)

    @property
    def may_cost(self) -> bool:
        ratios = (self.compute, self.memory, self.link, self.host_link, self.cpu)
        return min(one.likely for one in ratios) < 1

    def at(self, side: Side) -> Self:
        """On a slower device what does not scale with it is what helps."""
        changed = super().at(side)
        if self.compute.likely * self.memory.likely >= 1:
            return changed
        return dataclasses.replace(changed, floor_us=self.floor_us.at(other_side(side)))

    def check(self, graph: TaskGraph) -> str | None:
        ratios = {name: getattr(self, name) for name in ("compute", "memory", "link", "host_link", "cpu")}
        for name, ratio in ratios.items():
            if not min(ratio.fast, ratio.slow) > 0:
                return f"{name} cannot be {ratio.likely} times as fast"
        if all(ratio == _SAME for ratio in ratios.values()):
            return "every ratio is 1: nothing is faster"
        kernels, kind = graph.tasks.kind == TaskKind.KERNEL, graph.tasks.kind
        copies = np.isin(kind, (TaskKind.COPY, TaskKind.MEMSET))
        if self.compute != _SAME and not kernels.any():
            return "the run has no kernels of a device: of a processor's run, ask for cpu="
        if self.memory != _SAME and not (kernels | copies).any():
            return "the run has nothing on a device whose memory could be faster"
        if self.host_link != _SAME and not (copies & select(graph, name=HOST_COPY)).any():
            return "the run has no copies between host and device"
        if self.link != _SAME and not (graph.tasks.kind == TaskKind.COLLECTIVE).any():
            return "the run has no communication that a link could make faster"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        kernels = work(graph) & graph.on_device()
        products, floor_us = computes(graph), self.floor_us.likely
        copies = select(graph, kind=(TaskKind.COPY, TaskKind.MEMSET))
        host = copies & select(graph, name=HOST_COPY)
        thread = ~graph.on_device() & (graph.tasks.kind != TaskKind.MARKER)
        graph = scale(graph, kernels & products, 1.0 / self.compute.likely, floor_us=floor_us)
        graph = scale(
            graph, (kernels & ~products) | (copies & ~host), 1.0 / self.memory.likely, floor_us=floor_us
        )
        graph = scale(graph, host, 1.0 / self.host_link.likely, floor_us=floor_us)
        graph = scale(
            graph, graph.tasks.kind == TaskKind.COLLECTIVE, 1.0 / self.link.likely, floor_us=floor_us
        )
        graph = scale(graph, thread, 1.0 / self.cpu.likely)
        return scale_gaps(graph, ~graph.on_device() & (graph.structure.before >= 0), 1.0 / self.cpu.likely)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            "the other device runs the same kernels",
            "communication is bound by the link, not by latency",
        )

"""Automatic mixed precision: kernels that compute use tensor cores, those that move data move half of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.task import Phase, TaskKind
from daceml.simulation.whatif.kernel_classes import COMPUTE, HALF
from daceml.simulation.whatif.optimization import Estimate, Optimization


@dataclass(frozen=True, kw_only=True)
class AutomaticMixedPrecision(Optimization):
    """Float32 kernels in float16 or bfloat16.

    Attributes:
        compute_speedup: of products and convolutions.
        memory_speedup: of everything else that a device does, bound by memory.
    """

    option: ClassVar[str] = "amp"
    title: ClassVar[str] = "automatic mixed precision"
    source: ClassVar[str] = "Zhu et al., Daydream (ATC '20), Algorithm 3: 3 and 2 times"

    compute_speedup: Estimate = Estimate(3.0, fast=4.0, slow=2.0)
    memory_speedup: Estimate = Estimate(2.0, fast=2.0, slow=1.4)

    def check(self, graph: TaskGraph) -> str | None:
        if not (graph.tasks.kind == TaskKind.KERNEL).any():
            return "the run has no kernels of a device"
        if not self._changed(graph).any():
            return "every kernel of the run computes in half precision already"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        changed = self._changed(graph)
        compute = changed & select(graph, name=COMPUTE)
        graph = scale(graph, compute, 1.0 / self.compute_speedup.likely)
        return scale(graph, changed & ~compute, 1.0 / self.memory_speedup.likely)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return ("casts between the types are not added", "the optimizer's kernels stay in float32")

    def _changed(self, graph: TaskGraph) -> Mask:
        kernels = select(graph, kind=TaskKind.KERNEL, phase=(Phase.FORWARD, Phase.BACKWARD, Phase.OTHER))
        return kernels & ~select(graph, name=HALF)

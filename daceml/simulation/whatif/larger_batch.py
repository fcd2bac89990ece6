"""A larger (or smaller) batch: work grows with it above a floor, launches stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.task import Phase, TaskKind
from daceml.simulation.whatif.optimization import Estimate, Optimization, Side, other_side
from daceml.simulation.whatif.work import computes, has_device, work


@dataclass(frozen=True, kw_only=True)
class LargerBatch(Optimization):
    """time = floor + slope x batch, for all work but the optimizer's and what sums gradients.

    Attributes:
        ratio: of the batch to the recorded one.
        floor_us: of each task, what does not grow.
        growth: power of the ratio by which products grow; below 1 where a small batch leaves the device idle.
        floors_us: regular expression of names -> floor that was measured, instead of `floor_us`.
    """

    option: ClassVar[str] = "batch"
    title: ClassVar[str] = "larger batch"
    source: ClassVar[str] = (
        "linear cost above a launch floor, as measured over batch sizes by Qi et al., Paleo (ICLR '17)"
    )

    ratio: float = 2.0
    floor_us: Estimate = Estimate(1.5, fast=3.0, slow=0.0)
    growth: Estimate = Estimate(0.97, fast=0.85, slow=1.0)
    floors_us: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def samples(self) -> float:
        return self.ratio

    def at(self, side: Side) -> Self:
        """Of a smaller batch the sides change places: the less shrinks, the slower."""
        return super().at(other_side(side) if self.ratio < 1 else side)

    def check(self, graph: TaskGraph) -> str | None:
        if not 0 < self.ratio < np.inf:
            return f"a batch {self.ratio} times as large is none"
        grows = work(graph) & ~select(graph, phase=Phase.OPTIMIZER)
        return None if grows.any() else "the run has no work that grows with the batch"

    def apply(self, graph: TaskGraph) -> TaskGraph:
        grows = work(graph) & ~select(graph, phase=Phase.OPTIMIZER)
        products = computes(graph)
        measured = np.zeros(len(graph), np.bool_)
        for name, floor_us in self.floors_us.items():
            named = grows & select(graph, name=name) & ~measured
            measured |= named
            graph = scale(graph, named, self.ratio, floor_us=floor_us)
        grows &= ~measured
        floor_us = self.floor_us.likely
        graph = scale(graph, grows & products, self.ratio**self.growth.likely, floor_us=floor_us)
        graph = scale(graph, grows & ~products, self.ratio, floor_us=floor_us)
        copied = select(graph, kind=(TaskKind.COPY, TaskKind.MEMSET)) & ~select(graph, phase=Phase.OPTIMIZER)
        graph = scale(graph, copied, self.ratio, floor_us=floor_us)
        return scale(graph, select(graph, kind=TaskKind.DATA), self.ratio)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        assumed = ["launches, their gaps, the optimizer and the sums of gradients take what they took"]
        assumed.append("the larger batch fits in memory, and the same kernels are chosen for it")
        if not has_device(graph):
            assumed.append("operators run on the same threads")
        return tuple(assumed)

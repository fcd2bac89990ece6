"""Gradient accumulation: the optimizer, and what sums gradients over devices, run every k-th step only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.graph import NOTHING, Mask, TaskGraph
from daceml.simulation.primitives.scale import scale, scale_gaps, set_duration
from daceml.simulation.primitives.select import select
from daceml.simulation.task import Phase, TaskKind
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.work import work


@dataclass(frozen=True, kw_only=True)
class GradientAccumulation(Optimization):
    """A step of the graph is a part of a batch, as large as the recorded one.

    The update of every k-th step is spread over all k: however many steps were recorded, their mean is that
    of whole batches.

    Attributes:
        every: so many parts make a batch.
        add_share: of the time of the optimizer's work, what adding gradients takes instead in parts behind
            the first: 3 words a weight, where an optimizer that is not fused moves about 18.
    """

    option: ClassVar[str] = "gradient-accumulation"
    title: ClassVar[str] = "gradient accumulation"
    source: ClassVar[str] = (
        "torch.nn.parallel.DistributedDataParallel.no_sync; traffic of Adam, 3 of 18 words"
    )

    every: int = 4
    add_share: Estimate = Estimate(0.17, fast=0.1, slow=0.4)

    def check(self, graph: TaskGraph) -> str | None:
        if not isinstance(self.every, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            return f"{self.every!r} is not a number of parts"
        if self.every < 2:
            return f"a batch of {self.every} parts accumulates nothing"
        if not self._update(graph).any():
            return "no work of the run belongs to an optimizer"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        share = 1.0 / self.every
        last = self._last_backward(graph)
        marked = np.zeros(len(graph), np.bool_)
        marked[last] = True
        added_us = graph.tasks.duration_us[last] + (1.0 - share) * self._add_us(graph)
        graph = set_duration(graph, marked, added_us)
        optimizer = select(graph, phase=Phase.OPTIMIZER) & (graph.tasks.step != NOTHING)
        rare = self._update(graph) | (graph.tasks.kind == TaskKind.COLLECTIVE)
        rare |= optimizer & select(graph, kind=TaskKind.CALL)
        threads = optimizer & ~graph.on_device() & (graph.structure.before >= 0)
        return scale_gaps(scale(graph, rare, share), threads, share)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            f"a step is one of {self.every} parts of a batch, each as large as the recorded batch, and does"
            " as large a part of the update: their mean counts, not which of them updates the weights",
            "gradients are added at the end of the backward phase, and launching that costs no CPU time",
        )

    def _update(self, graph: TaskGraph) -> Mask:
        device = graph.on_device() & (graph.tasks.kind != TaskKind.COLLECTIVE)
        return (work(graph) | device) & select(graph, phase=Phase.OPTIMIZER)

    def _steps(self, graph: TaskGraph) -> list[int]:
        steps = np.unique(graph.tasks.step[self._update(graph)])
        return steps[steps != NOTHING].tolist()

    def _add_us(self, graph: TaskGraph) -> float:
        update_us = graph.tasks.duration_us[self._update(graph) & work(graph)].sum()
        return float(update_us) / len(self._steps(graph)) * self.add_share.likely

    def _last_backward(self, graph: TaskGraph) -> list[int]:
        backward = work(graph) & select(graph, phase=Phase.BACKWARD)
        found = [np.flatnonzero(backward & (graph.tasks.step == step)) for step in self._steps(graph)]
        return sorted(int(tasks[-1]) for tasks in found if len(tasks))

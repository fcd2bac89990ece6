"""Another link: what a run that already communicates would be with more, or less, bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.links import Link
from daceml.simulation.primitives.scale import set_duration
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.distributed_runs import communicates
from daceml.simulation.whatif.optimization import Estimate, Optimization, Side, other_side


@dataclass(frozen=True, kw_only=True)
class AnotherLink(Optimization):
    """Recorded collectives over another link: their latency stays, the rest follows the bandwidth.

    Attributes:
        recorded: the link that the run used.
        wanted: the other one.
        latency_us: of a recorded collective that bandwidth has no part in.
    """

    option: ClassVar[str] = "faster-link"
    title: ClassVar[str] = "another link between devices"
    source: ClassVar[str] = (
        "bytes over bandwidth (NVIDIA/nccl-tests, doc/PERFORMANCE.md); latency: 9 to 31 us on 2 and 8 A100"
        " (nccl-tests of Echo)"
    )

    recorded: Link
    wanted: Link
    latency_us: Estimate = Estimate(20.0, fast=9.0, slow=31.0)

    @property
    def may_cost(self) -> bool:
        return self.wanted.bytes_per_s < self.recorded.bytes_per_s

    def check(self, graph: TaskGraph) -> str | None:
        if not (graph.tasks.kind == TaskKind.COLLECTIVE).any():
            if communicates(graph):
                return "the run's collectives are operators of the CPU, whose times are not those of the link"
            return "the run sends nothing to other devices; what several would do is option 'ddp'"
        if self.latency_us.likely < 0:
            return "a latency cannot be below zero"
        if self.recorded.bytes_per_s == float("inf"):
            return "the run's own link cannot be infinitely fast"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        collective = graph.tasks.kind == TaskKind.COLLECTIVE
        recorded_us = graph.tasks.duration_us[collective]
        latency_us = np.minimum(recorded_us, self.latency_us.likely)
        ratio = self.recorded.bytes_per_s / self.wanted.bytes_per_s
        return set_duration(graph, collective, latency_us + (recorded_us - latency_us) * ratio)

    def at(self, side: Side) -> Self:
        """Over a slower link the sides change places: the more of a collective is latency, the faster."""
        if self.wanted.bytes_per_s < self.recorded.bytes_per_s:
            side = other_side(side)
        return super().at(side)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            "a recorded collective waits for no other device: its time is latency and bytes over bandwidth",
            "all collectives of the run use this link",
        )

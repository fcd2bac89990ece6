"""Training with parameter servers, predicted from the run of one device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.links import Link
from daceml.simulation.task import Phase
from daceml.simulation.whatif.backward_phases import computing
from daceml.simulation.whatif.buckets import in_ready_order
from daceml.simulation.whatif.distributed_runs import ALREADY, communicates
from daceml.simulation.whatif.gradients import HOW_TO_GIVE, Gradients
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.push_pull import Slice, with_push_pull


@dataclass(frozen=True, kw_only=True)
class ParameterServer(Optimization):
    """Workers that push each gradient to a server as soon as they have it, and pull the weights back.

    Servers update the weights. Parameters are spread over them evenly. What an update takes there is in no
    trace: the run keeps its optimizer's time, so that n workers are never more than n times as fast as one.

    Attributes:
        workers: devices that train.
        servers: processes that hold weights; None for as many as workers.
        beside_workers: each server shares the link of a worker; otherwise it has one of its own.
        link: of each of them.
        efficiency: share of the link's bandwidth that transfers reach.
    """

    option: ClassVar[str] = "parameter-server"
    title: ClassVar[str] = "training with parameter servers"
    family: ClassVar[str] = "several devices"
    above_zero: ClassVar[tuple[str, ...]] = ("efficiency", "workers")
    source: ClassVar[str] = (
        "Li et al., Scaling Distributed Machine Learning with the Parameter Server (OSDI '14)"
    )

    workers: int
    link: Link
    gradients: Gradients | None = None
    servers: int | None = None
    beside_workers: bool = True
    efficiency: Estimate = Estimate(0.8, fast=0.95, slow=0.5)

    @property
    def devices(self) -> float:
        return float(self.workers)

    def check(self, graph: TaskGraph) -> str | None:
        work = computing(graph)
        if communicates(graph):
            return ALREADY
        if not (work & (graph.tasks.phase == Phase.BACKWARD)).any():
            return "the run has no backward phase, so it computes no gradients"
        if self.gradients is None:
            return f"the size of the gradients is not known: {HOW_TO_GIVE}"
        if not self.gradients.rows:
            return (
                "only the total of the gradients is known, and each one is sent by itself: give them by name"
            )
        if self.workers < 1 or (self.servers is not None and self.servers < 1):
            return "there is at least one worker and one server"
        if self.beside_workers and self.servers is not None and self.servers > self.workers:
            return f"{self.servers} servers do not fit on {self.workers} workers"
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            if not (work & (graph.tasks.phase == phase) & (graph.tasks.layer >= 0)).any():
                return (
                    f"the layers of the {phase.name.lower()} work are unknown, each of which sends and"
                    " waits by itself: record with daceml.profile(model), or with_modules=True"
                )
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        return with_push_pull(graph, tuple(self._slices()))

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            "an update takes the servers as long as the optimizer took here, while slices are sent",
            "all workers take as long as this one, and each has batches as large as this run's",
            "transfers take nothing of the device",
        )

    @property
    def slice_limit_bytes(self) -> float:
        """What is sent at once at most."""
        return math.inf

    def _slices(self) -> Iterator[Slice]:
        assert self.gradients is not None
        for gradient in in_ready_order(self.gradients.rows):
            pieces = max(1, math.ceil(gradient.size_bytes / self.slice_limit_bytes))
            size = gradient.size_bytes / pieces
            duration_us = 0.0 if self.workers == 1 else self.transfer_us(size)
            for _ in range(pieces):
                yield Slice(gradient=gradient, size_bytes=size, duration_us=duration_us)

    def transfer_us(self, size_bytes: float) -> float:
        """How long the busiest link takes for a push, or a pull, of so many bytes, on average over servers.

        In each direction a worker's link carries what it sends to other machines, (n - 1) / n of it where the
        servers stand beside the n workers; that of a server carries a share of what all workers send. Beside
        each other they share one link.
        """
        servers = self.workers if self.servers is None else self.servers
        if self.beside_workers:
            carried = (self.workers - 1) / self.workers + (self.workers - 1) / servers
        else:
            carried = max(1.0, self.workers / servers)
        reached = self.link.bytes_per_s * self.efficiency.likely
        return self.link.latency_us + size_bytes * carried / reached * 1e6

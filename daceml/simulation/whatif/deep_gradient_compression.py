"""Deep gradient compression: devices send the largest gradients only, found by kernels of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.collectives import Collective, collective_us
from daceml.simulation.task import Phase
from daceml.simulation.whatif.backward_phases import computing
from daceml.simulation.whatif.bucket_sends import Computation, Sending, Transfer
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Bucket
from daceml.simulation.whatif.optimization import Estimate


@dataclass(frozen=True, kw_only=True)
class DeepGradientCompression(DataParallel):
    """Data-parallel training that sends a small share of the gradients and keeps the rest for later steps.

    Devices choose different gradients, so each sends its values with their places to all others by
    all-gather. Where that takes longer than the all-reduce of everything, the latter is done.

    Attributes:
        ratio: share of the gradients that is sent.
        place_bytes: bytes of a place for each byte of a value.
        compression, decompression: kernels for a bucket, in times what the optimizer's kernels take for its
            parameters: both are element by element.
    """

    option: ClassVar[str] = "dgc"
    title: ClassVar[str] = "data-parallel training with deep gradient compression"
    source: ClassVar[str] = (
        "Lin et al., Deep Gradient Compression (ICLR '18): 0.1 % are sent; Zhu et al., Daydream (ATC '20),"
        " Algorithm 12: kernels by those that are element by element"
    )

    ratio: float = 0.001
    place_bytes: float = 1.0
    compression: Estimate = Estimate(1.0, fast=0.5, slow=2.0)
    decompression: Estimate = Estimate(0.5, fast=0.1, slow=1.0)

    def check(self, graph: TaskGraph) -> str | None:
        reason = super().check(graph)
        if reason is not None:
            return reason
        if not 0 < self.ratio <= 1:
            return f"{self.ratio} of the gradients cannot be sent: give a share above 0, at most 1"
        if self.place_bytes < 0 or min(self.compression.likely, self.decompression.likely) < 0:
            return "places and kernels cannot cost less than nothing"
        costs = max(self.compression.likely, self.decompression.likely) > 0
        if costs and _optimizer_us(graph) == 0:
            return (
                "the run has no optimizer's kernels, from which the time of the compression is learned:"
                " record optimizer.step() as well, or set `compression` and `decompression` to 0"
            )
        return None

    def sending(self, graph: TaskGraph, bucket: Bucket, number: int) -> Sending:
        dense = super().sending(graph, bucket, number)
        devices = self.topology.devices
        each_bytes = bucket.size_bytes * self.ratio * (1 + self.place_bytes)
        sparse_us = collective_us(Collective.ALL_GATHER, devices * each_bytes, self.reached)
        if sparse_us < sum(transfer.duration_us for transfer in dense.transfers):
            name = f"all-gather of bucket {number}"
            gathered = Transfer(name=name, duration_us=sparse_us, channel="all-reduce", size_bytes=each_bytes)
            transfers: tuple[Transfer, ...] = (gathered,)
        else:
            transfers = dense.transfers
        assert self.gradients is not None
        bucket_us = _optimizer_us(graph) * bucket.size_bytes / self.gradients.total_bytes
        return Sending(
            before=_computation(f"compression of bucket {number}", bucket_us * self.compression.likely),
            transfers=transfers,
            behind=_computation(f"decompression of bucket {number}", bucket_us * self.decompression.likely),
        )

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            *super().assumptions(graph),
            "one kernel compresses a bucket and one decompresses it; training needs no more steps for it",
        )


def _computation(name: str, duration_us: float) -> tuple[Computation, ...]:
    return (Computation(name=name, duration_us=duration_us),) if duration_us > 0 else ()


def _optimizer_us(graph: TaskGraph) -> float:
    """What the optimizer computes in a step, in the middle of the steps that have one; 0 where none has."""
    tasks = graph.tasks
    optimizer = computing(graph) & (tasks.phase == Phase.OPTIMIZER)
    if not optimizer.any():
        return 0.0
    steps = tasks.step[optimizer]
    sums = np.bincount(steps - steps.min(), weights=tasks.duration_us[optimizer])
    return float(np.median(sums[sums > 0])) if (sums > 0).any() else 0.0

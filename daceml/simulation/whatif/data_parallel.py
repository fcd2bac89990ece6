"""Data-parallel training, predicted from the run of one device: an all-reduce for each bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.collectives import Algorithm, Collective, collective_us
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology
from daceml.simulation.task import Lane, Phase, TaskKind
from daceml.simulation.whatif.backward_phases import computing, nearest
from daceml.simulation.whatif.bucket_sends import Sending, Transfer, with_sends
from daceml.simulation.whatif.buckets import FIRST_BYTES, LIMIT_BYTES, buckets_of
from daceml.simulation.whatif.distributed_runs import ALREADY, communicates
from daceml.simulation.whatif.gradients import HOW_TO_GIVE, Bucket, Gradients
from daceml.simulation.whatif.interference import slowed
from daceml.simulation.whatif.optimization import Estimate, Optimization


@dataclass(frozen=True, kw_only=True)
class DataParallel(Optimization):
    """Several devices that share the batches and average their gradients, as DistributedDataParallel does.

    Attributes:
        topology: of all devices, with what data sheets say of their links.
        gradients: None where nobody knows them.
        efficiency: share of the links' bandwidth that collectives reach.
        interference: share of a device that a collective takes from the kernels that run meanwhile.
        first_bucket_bytes, bucket_bytes: limits of buckets, where no data-parallel run has told them.
        algorithm: of an all-reduce.
        measured: times of an all-reduce, instead of the formula; nothing is assumed of links then.
    """

    option: ClassVar[str] = "ddp"
    title: ClassVar[str] = "data-parallel training"
    family: ClassVar[str] = "several devices"
    above_zero: ClassVar[tuple[str, ...]] = ("efficiency",)
    source: ClassVar[str] = (
        "Zhu et al., Daydream (ATC '20), Algorithm 6; NVIDIA/nccl-tests, doc/PERFORMANCE.md; efficiency:"
        " all-reduces of large arrays by 2 to 8 A100 and H100 reach 0.64 to 0.99 of NVLink's bandwidth"
        " (aiconfigurator; nccl-tests of Echo); among kernels they take 1.34 times as long (Daydream,"
        " Figure 9)"
    )

    topology: Topology
    gradients: Gradients | None = None
    efficiency: Estimate = Estimate(0.75, fast=1.0, slow=0.5)
    interference: Estimate = Estimate(0.1, fast=0.0, slow=0.25)
    first_bucket_bytes: float = FIRST_BYTES
    bucket_bytes: float = LIMIT_BYTES
    algorithm: Algorithm = "fastest"
    measured: MeasuredCollective | None = None

    @property
    def devices(self) -> float:
        return float(self.topology.devices)

    def check(self, graph: TaskGraph) -> str | None:
        if communicates(graph):
            return ALREADY
        if not (computing(graph) & (graph.tasks.phase == Phase.BACKWARD)).any():
            return "the run has no backward phase, so it computes no gradients"
        if self.gradients is None:
            return f"the size of the gradients is not known: {HOW_TO_GIVE}"
        if self.measured is not None and self.measured.collective is not Collective.ALL_REDUCE:
            return (
                f"the measured collective is {self.measured.collective}, and buckets are summed by all-reduce"
            )
        if self.measured is not None and self.measured.devices != self.topology.devices:
            return f"{self.measured.devices} devices were measured, not {self.topology.devices}"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        buckets = self.buckets
        sendings = [self.sending(graph, bucket, number) for number, bucket in enumerate(buckets)]
        result = with_sends(graph, buckets, sendings, self.lanes())
        return slowed(
            result,
            collectives=result.tasks.kind == TaskKind.COLLECTIVE,
            computing=computing(result),
            share=self.interference.likely,
            policy=self.policy,
        )

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """What is sent, in its order; nothing where no gradients are known."""
        if self.gradients is None:
            return ()
        return buckets_of(self.gradients, first_bytes=self.first_bucket_bytes, limit_bytes=self.bucket_bytes)

    def lanes(self) -> tuple[Lane, ...]:
        """The channels; buckets pass an ordered one in their order, as torch sends them."""
        return (Lane(kind="channel", name="all-reduce"),)

    def sending(self, graph: TaskGraph, bucket: Bucket, number: int) -> Sending:
        """How the bucket of this number is sent."""
        transfer = Transfer(
            name=f"all-reduce of bucket {number}", duration_us=self.all_reduce_us(bucket.size_bytes),
            channel="all-reduce", size_bytes=bucket.size_bytes,
        )  # fmt: skip
        return Sending(transfers=(transfer,))

    def all_reduce_us(self, size_bytes: float) -> float:
        """How long the sum of so many bytes takes."""
        if self.measured is not None:
            return self.measured.duration_us(size_bytes)
        return collective_us(Collective.ALL_REDUCE, size_bytes, self.reached, self.algorithm)

    @property
    def reached(self) -> Topology:
        """With links as fast as collectives see them."""
        return self.topology.at_efficiency(self.efficiency.likely)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        gradients = self.gradients
        sent = gradients is not None and gradients.sent is not None
        notes = [
            "all devices take as long as this one, and each has batches as large as this run's",
            "buckets are those that the run made" if sent else "buckets are made by torch's rule",
            "calls that start collectives cost the CPU nothing",
            f"a kernel that runs during a collective is slowed to {1 - self.interference.likely:.0%}",
        ]
        if self.measured is None:
            notes.append(
                f"collectives reach {self.efficiency.likely:.0%} of the links' bandwidth; where devices reach"
                " each other only through the host it is far less (8 L40S: 5% of PCIe)"
            )
        known = _share_of_known(graph, gradients)
        if known < 1:
            notes.append(
                f"{1 - known:.0%} of the gradients have no known kernels: they are taken as ready"
                " when the same share of the backward phase is over"
            )
        return tuple(notes)


def _share_of_known(graph: TaskGraph, gradients: Gradients | None) -> float:
    """Of the gradients' bytes, those whose layer has work in the backward phase."""
    if gradients is None or not gradients.rows:
        return 0.0
    backward = graph.tasks.layer[computing(graph) & (graph.tasks.phase == Phase.BACKWARD)]
    layers: dict[str, tuple[int, ...]] = {
        graph.names[layer]: () for layer in np.unique(backward).tolist() if layer >= 0
    }
    known = sum(row.size_bytes for row in gradients.rows if nearest(row.layer, layers) is not None)
    return known / gradients.total_bytes

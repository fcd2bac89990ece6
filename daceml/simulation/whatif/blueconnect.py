"""BlueConnect: an all-reduce as reduce-scatters and all-gathers over levels of the network, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.collectives import Collective, collective_us
from daceml.simulation.network.topology import Topology
from daceml.simulation.task import Lane
from daceml.simulation.whatif.bucket_sends import Sending, Transfer
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Bucket


@dataclass(frozen=True, kw_only=True)
class BlueConnect(DataParallel):
    """Data-parallel training that reduces over one factor of the number of devices after another.

    Each level has a channel of its own, so one bucket can pass the network while another one passes the
    links inside the nodes. What is left of a bucket shrinks by each factor that it has been scattered over.

    Attributes:
        factors: whose product is the number of devices, those inside a node first; None takes the devices
            of a node and the nodes.
    """

    option: ClassVar[str] = "blueconnect"
    title: ClassVar[str] = "data-parallel training with BlueConnect"
    source: ClassVar[str] = "Cho et al., BlueConnect (MLSys '19); Zhu et al., Daydream (ATC '20), Algorithm 8"

    factors: tuple[int, ...] | None = None

    def check(self, graph: TaskGraph) -> str | None:
        if self.measured is not None:
            return "a measured all-reduce says nothing of its parts: leave `measured` out"
        topology = self.topology
        if self.factors is not None:
            written = " x ".join(map(str, self.factors))
            if prod(self.factors) != topology.devices or min(self.factors, default=0) < 1:
                return f"the factors {written} do not multiply to the {topology.devices} devices"
            if not _aligned(self.factors, topology.devices_per_node):
                node = topology.devices_per_node
                return f"no first factors of {written} multiply to the {node} devices of a node"
        if len(self._levels) < 2:
            return (
                "the devices form one level, so there is nothing to divide: give `factors`, or several nodes"
            )
        return super().check(graph)

    def lanes(self) -> tuple[Lane, ...]:
        return tuple(
            Lane(kind="channel", name=f"level {number}", ordered=False) for number in range(len(self._levels))
        )

    def sending(self, graph: TaskGraph, bucket: Bucket, number: int) -> Sending:
        scatter: list[Transfer] = []
        gather: list[Transfer] = []
        left_bytes = bucket.size_bytes
        for level, part in enumerate(self._levels):
            for transfers, what in ((scatter, Collective.REDUCE_SCATTER), (gather, Collective.ALL_GATHER)):
                transfers.append(
                    Transfer(
                        name=f"{what} {level} of bucket {number}", channel=f"level {level}",
                        duration_us=collective_us(what, left_bytes, part), size_bytes=left_bytes,
                    )
                )  # fmt: skip
            left_bytes /= part.devices
        return Sending(transfers=(*scatter, *reversed(gather)))

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            *super().assumptions(graph),
            "levels inside one node have links of their own, each as fast as all",
        )

    @property
    def _levels(self) -> tuple[Topology, ...]:
        """One group of each level, as a topology; those that reduce side by side share a node's link."""
        topology = self.reached
        factors = self.factors or (topology.devices_per_node, topology.nodes)
        levels: list[Topology] = []
        inside = 1
        for factor in factors:
            if factor == 1:
                continue
            if inside < topology.devices_per_node:
                inside *= factor
                levels.append(replace(topology, devices_per_node=factor, nodes=1))
            else:
                # Every device of a node sends its own part at the same time.
                assert topology.outside is not None
                own = replace(
                    topology.outside, bytes_per_s=topology.outside.bytes_per_s / topology.devices_per_node
                )
                levels.append(replace(topology, devices_per_node=1, nodes=factor, outside=own))
        return tuple(levels)


def _aligned(factors: tuple[int, ...], devices_per_node: int) -> bool:
    """Whether the first factors make up a node, so that each level is inside or between nodes."""
    return any(prod(factors[:count]) == devices_per_node for count in range(len(factors) + 1))

"""How long ranks of a group take to communicate: as measured where somebody has, else by formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from daceml.errors import ParallelPlanError
from daceml.simulation.network.collectives import Collective, collective_us
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Communication:
    """The network of a job, and what was measured on it.

    Attributes:
        topology: of all devices; ranks fill one node after the other.
        measured: tables of collectives inside one node.
    """

    topology: Topology
    measured: tuple[MeasuredCollective, ...] = ()

    def duration_us(self, collective: Collective, size_bytes: float, ranks: Sequence[int]) -> float:
        """Of a collective of these ranks.

        Where a group has fewer ranks of a node than there are, the others form groups of their own, which
        send at the same time and share the node's link.

        Raises:
            ParallelPlanError: a rank that the topology does not have, or unequal shares of nodes.
        """
        if len(ranks) < 2 or size_bytes <= 0:
            return 0.0
        group = self.group(ranks)
        for table in self.measured:
            if group.nodes == 1 and table.collective is collective and table.devices == len(ranks):
                return table.duration_us(size_bytes)
        return collective_us(collective, size_bytes, group)

    def group(self, ranks: Sequence[int]) -> Topology:
        """These ranks as a topology of their own."""
        own, each = self.topology, self.topology.devices_per_node
        if max(ranks) >= own.devices or min(ranks) < 0:
            raise ParallelPlanError(
                f"rank {max(ranks)} is none of the {own.devices} devices of the network",
                fix="give a topology with as many devices as the plan has ranks",
            )
        members: dict[int, int] = {}
        for rank in ranks:
            members[rank // each] = members.get(rank // each, 0) + 1
        nodes, inside = len(members), max(members.values())
        if len(set(members.values())) > 1:
            raise ParallelPlanError(
                f"a group has {min(members.values())} to {inside} ranks on a node",
                why=f"of {len(ranks)} ranks, nodes with {each} devices hold unequal shares",
                fix="choose degrees of parallelism that divide the devices of a node, or multiples of them",
            )
        outside = own.outside
        if nodes > 1 and outside is not None:
            outside = replace(outside, bytes_per_s=outside.bytes_per_s * inside / each)
        return replace(own, devices_per_node=inside, nodes=nodes, outside=outside)

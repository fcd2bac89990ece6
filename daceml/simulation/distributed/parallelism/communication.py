"""How long ranks of a group take to communicate: as measured where somebody has, else by formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daceml.errors import ParallelPlanError
from daceml.simulation.network.collectives import Collective, collective_us
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology

Floats = NDArray[np.float64]


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
        """Of one group, while nobody else uses the network.

        Raises:
            ParallelPlanError: a rank that the topology does not have, or unequal shares of nodes.
        """
        return float(self.durations_us(collective, size_bytes, (ranks,))[0])

    def durations_us(
        self, collective: Collective, size_bytes: float, groups: Sequence[Sequence[int]]
    ) -> Floats:
        """[groups] of a collective that all of these groups begin at the same time.

        Groups that leave a node share its link.

        Raises:
            ParallelPlanError: a rank that the topology does not have, or unequal shares of nodes.
        """
        if size_bytes <= 0:
            return np.zeros(len(groups))
        known: dict[Topology, float] = {}
        found: list[float] = []
        for ranks, topology in zip(groups, self.topologies(groups), strict=True):
            if len(ranks) > 1 and topology not in known:
                known[topology] = self._of_group(collective, size_bytes, topology)
            found.append(known[topology] if len(ranks) > 1 else 0.0)
        return np.array(found)

    def topologies(self, groups: Sequence[Sequence[int]]) -> list[Topology]:
        """Each group as a topology of its own, with its share of the links between nodes.

        Raises:
            ParallelPlanError: a rank that the topology does not have, or unequal shares of nodes.
        """
        spread = [self._by_node(ranks) for ranks in groups]
        crossing = Counter(node for members in spread if len(members) > 1 for node in members)
        return [self._topology(members, max(crossing[n] for n in members)) for members in spread]

    def require(self, ranks: int) -> None:
        """Refuse more ranks than there are devices.

        Raises:
            ParallelPlanError: a rank would have none.
        """
        if ranks > self.topology.devices:
            raise ParallelPlanError(
                f"{ranks} ranks on the {self.topology.devices} devices of the network",
                fix="give a topology with as many devices as the plan has ranks",
            )

    def _of_group(self, collective: Collective, size_bytes: float, group: Topology) -> float:
        for table in self.measured:
            if group.nodes == 1 and table.collective is collective and table.devices == group.devices:
                return table.duration_us(size_bytes)
        return collective_us(collective, size_bytes, group)

    def _by_node(self, ranks: Sequence[int]) -> Counter[int]:
        """Node -> how many of these ranks it has."""
        own, each = self.topology, self.topology.devices_per_node
        outside = [rank for rank in ranks if not 0 <= rank < own.devices]
        if outside:
            raise ParallelPlanError(
                f"rank {outside[0]} is none of the {own.devices} devices of the network",
                fix="give a topology with as many devices as the plan has ranks",
            )
        members = Counter(rank // each for rank in ranks)
        if len(set(members.values())) > 1:
            raise ParallelPlanError(
                f"a group has {min(members.values())} to {max(members.values())} ranks on a node",
                why=f"of {len(ranks)} ranks, nodes with {each} devices hold unequal shares",
                fix="choose degrees of parallelism that divide the devices of a node, or multiples of them",
            )
        return members

    def _topology(self, members: Counter[int], sharing: int) -> Topology:
        outside = self.topology.outside
        if len(members) > 1 and outside is not None:
            outside = replace(outside, bytes_per_s=outside.bytes_per_s / sharing)
        return replace(
            self.topology, devices_per_node=max(members.values()), nodes=len(members), outside=outside
        )

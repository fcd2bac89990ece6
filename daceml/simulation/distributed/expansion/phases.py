"""Which phases of transfers make a collective of a group, and the form of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal

from daceml.errors import ExpansionError
from daceml.simulation.distributed.expansion.transfers import Transfer, TransferPhase, ring
from daceml.simulation.distributed.expansion.tree import tree_all_reduce
from daceml.simulation.network.collectives import Collective, between_nodes, fastest_way, inside_of
from daceml.simulation.network.topology import Topology

RingOrTree = Literal["ring", "tree", "hierarchical"]


def phases_of(
    collective: Collective,
    size_bytes: float,
    devices: Sequence[int],
    topology: Topology,
    algorithm: RingOrTree,
) -> tuple[TransferPhase, ...]:
    """In order, with the ways that `collective_us` takes for the same algorithm.

    Args:
        size_bytes: of the whole array.
        devices: of the topology, that take part: equally many of each node.
        algorithm: "ring" for reduce-scatter and all-gather.
    Raises:
        ExpansionError: an algorithm that does not do this collective, or nodes with unequal shares.
    """
    nodes = by_node(devices, topology)
    own = Topology(
        devices_per_node=len(nodes[0]), nodes=len(nodes), inside=topology.inside, outside=topology.outside,
        overhead_us=topology.overhead_us,
    )  # fmt: skip
    if algorithm != "ring" and collective is not Collective.ALL_REDUCE:
        raise ExpansionError(
            f"a {algorithm} algorithm does no {collective}",
            why="only an all-reduce goes up and down",
            fix="expand it as a ring",
        )
    if algorithm == "ring":
        transfers = ring(collective, size_bytes, list(chain.from_iterable(nodes)))
        return (TransferPhase(transfers=transfers, way=fastest_way(collective, size_bytes, own, "ring")),)
    if algorithm == "tree":
        transfers = tree_all_reduce(size_bytes, nodes)
        return (TransferPhase(transfers=transfers, way=fastest_way(collective, size_bytes, own, "tree")),)
    part = size_bytes / own.devices_per_node
    across = [ring(collective, part, places) for places in zip(*nodes, strict=True)]
    found: list[TransferPhase] = []
    for what, rings, where in (
        (
            Collective.REDUCE_SCATTER,
            [ring(Collective.REDUCE_SCATTER, size_bytes, n) for n in nodes],
            inside_of(own),
        ),
        (Collective.ALL_REDUCE, across, between_nodes(own)),
        (Collective.ALL_GATHER, [ring(Collective.ALL_GATHER, size_bytes, n) for n in nodes], inside_of(own)),
    ):
        if where.devices > 1:
            found.append(
                TransferPhase(transfers=_beside(rings), way=fastest_way(what, size_bytes, where, "ring"))
            )
    return tuple(found)


def by_node(devices: Sequence[int], topology: Topology) -> list[list[int]]:
    """The devices of each node, ascending.

    Raises:
        ExpansionError: one that the topology does not have, or unequal shares.
    """
    nodes: dict[int, list[int]] = {}
    for device in sorted(devices):
        if not 0 <= device < topology.devices:
            raise ExpansionError(
                f"device {device} is none of the {topology.devices} of the topology",
                fix="give a topology with all devices that communicate",
            )
        nodes.setdefault(device // topology.devices_per_node, []).append(device)
    if len({len(members) for members in nodes.values()}) > 1:
        raise ExpansionError(
            "nodes have unequal shares of a collective",
            why=", ".join(f"node {node} has {len(members)}" for node, members in nodes.items()),
            fix="take as many devices of each node, or leave this collective as one task",
        )
    return list(nodes.values())


def _beside(rings: Sequence[Sequence[Transfer]]) -> tuple[Transfer, ...]:
    """Rings that run at the same time, round by round, so that none of them is first on a link they share."""
    count = len(rings)
    return tuple(
        replace(one, after=tuple(number * count + which for number in one.after))
        for at_once in zip(*rings, strict=True)
        for which, one in enumerate(at_once)
    )

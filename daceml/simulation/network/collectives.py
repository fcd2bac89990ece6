"""How long collectives take, by formula: bytes over bandwidth as nccl-tests counts them, and hops.

NCCL's own model: the time is that of the fastest way, each `overhead + hops * latency + bytes / bandwidth`.
Sources: NVIDIA/nccl-tests, doc/PERFORMANCE.md (bus bandwidth); NVIDIA/nccl@01afd20a, src/graph/tuning.cc
(hops, and what each way costs relative to a ring with protocol Simple).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from daceml.simulation.network.topology import Topology

Algorithm = Literal["fastest", "ring", "tree", "hierarchical"]


class Collective(StrEnum):
    """What devices do together. Sizes are of the whole array, as nccl-tests counts them."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "all-to-all"
    SEND = "send"


def bus_factor(collective: Collective, devices: int) -> float:
    """Bytes through the busiest link for each byte of the array: bus over algorithm bandwidth."""
    share = (devices - 1) / devices
    return {
        Collective.ALL_REDUCE: 2 * share,
        Collective.REDUCE_SCATTER: share,
        Collective.ALL_GATHER: share,
        Collective.ALL_TO_ALL: share,
    }.get(collective, 1.0)


@dataclass(frozen=True, kw_only=True)
class Way:
    """A form of NCCL's rings and trees, relative to a ring with protocol Simple.

    Attributes:
        overhead: factor on the overhead of a collective.
        inside, outside: factors on the latency of a hop inside a node, and between nodes.
        bandwidth: share of the bus that it reaches.
    """

    form: Literal["ring", "tree"]
    overhead: float
    inside: float
    outside: float
    bandwidth: float


WAYS = (
    Way(form="ring", overhead=1.0, inside=1.0, outside=1.0, bandwidth=1.0),
    Way(form="ring", overhead=3.6 / 8.4, inside=0.47 / 3.4, outside=2.7 / 9.6, bandwidth=1 / 4),  # LL
    Way(form="tree", overhead=0.0, inside=28 / 3.4, outside=50 / 9.6, bandwidth=0.9),
    Way(form="tree", overhead=4.4 / 8.4, inside=0.52 / 3.4, outside=5.0 / 9.6, bandwidth=0.9 / 3.8),  # LL
)


def collective_us(
    collective: Collective, size_bytes: float, topology: Topology, algorithm: Algorithm = "fastest"
) -> float:
    """How long a collective of all devices takes, in microseconds; nothing on a single device.

    Args:
        size_bytes: of the whole array.
        algorithm: of an all-reduce: the faster of ring and tree, as NCCL decides; one of them; or
            reduce-scatter inside the nodes, all-reduce between them, all-gather inside.
    """
    if topology.devices == 1 or size_bytes <= 0:
        return 0.0
    if collective is Collective.SEND:
        return _over_us(
            size_bytes, topology.slowest.bytes_per_s, topology, hops_us=topology.slowest.latency_us
        )
    if collective is Collective.ALL_TO_ALL:
        return _all_to_all_us(size_bytes, topology)
    if collective is not Collective.ALL_REDUCE:
        return min(_ring_us(collective, size_bytes, topology, way) for way in WAYS if way.form == "ring")
    if algorithm == "hierarchical":
        return _hierarchical_us(size_bytes, topology)
    times = {
        form: min(time(size_bytes, topology, way) for way in WAYS if way.form == form)
        for form, time in (("ring", _ring_all_reduce_us), ("tree", _tree_us))
    }
    return min(times.values()) if algorithm == "fastest" else times[algorithm]


def fastest_way(
    collective: Collective, size_bytes: float, topology: Topology, form: Literal["ring", "tree"]
) -> Way:
    """The way of a form by which `collective_us` has a collective go."""

    def time_us(way: Way) -> float:
        if form == "tree":
            return _tree_us(size_bytes, topology, way)
        return _ring_us(collective, size_bytes, topology, way)

    return min((way for way in WAYS if way.form == form), key=time_us)


def _over_us(size_bytes: float, bytes_per_s: float, topology: Topology, *, hops_us: float) -> float:
    return topology.overhead_us + hops_us + size_bytes / bytes_per_s * 1e6


def _outside_us(topology: Topology) -> float:
    return 0.0 if topology.outside is None else topology.outside.latency_us


def _ring_all_reduce_us(size_bytes: float, topology: Topology, way: Way) -> float:
    return _ring_us(Collective.ALL_REDUCE, size_bytes, topology, way)


def _ring_us(collective: Collective, size_bytes: float, topology: Topology, way: Way) -> float:
    rounds = 2 if collective is Collective.ALL_REDUCE else 1
    between = rounds * (topology.nodes - 1)
    within = rounds * (topology.devices - 1) - between
    hops_us = within * topology.inside.latency_us * way.inside + between * _outside_us(topology) * way.outside
    sent = size_bytes * bus_factor(collective, topology.devices)
    reached = topology.bus_bytes_per_s * way.bandwidth
    return topology.overhead_us * way.overhead + hops_us + sent / reached * 1e6


def _tree_us(size_bytes: float, topology: Topology, way: Way) -> float:
    """Down and up a chain inside each node and a tree of nodes; everything passes each link twice."""
    within = 2 * (topology.devices_per_node - 1)
    between = 2 * math.ceil(math.log2(topology.nodes))
    hops_us = within * topology.inside.latency_us * way.inside + between * _outside_us(topology) * way.outside
    reached = topology.bus_bytes_per_s * way.bandwidth
    return topology.overhead_us * way.overhead + hops_us + 2 * size_bytes / reached * 1e6


def _hierarchical_us(size_bytes: float, topology: Topology) -> float:
    """Every device of a node reduces its part between nodes; together they send the array once more."""
    node, nodes = inside_of(topology), between_nodes(topology)
    return (
        collective_us(Collective.REDUCE_SCATTER, size_bytes, node)
        + collective_us(Collective.ALL_REDUCE, size_bytes, nodes, "ring")
        + collective_us(Collective.ALL_GATHER, size_bytes, node)
    )


def inside_of(topology: Topology) -> Topology:
    """One node by itself."""
    return Topology(
        devices_per_node=topology.devices_per_node, inside=topology.inside, overhead_us=topology.overhead_us
    )


def between_nodes(topology: Topology) -> Topology:
    """The nodes, each as if it were one device."""
    return Topology(
        devices_per_node=1, nodes=topology.nodes, inside=topology.inside, outside=topology.outside,
        overhead_us=topology.overhead_us,
    )  # fmt: skip


def _all_to_all_us(size_bytes: float, topology: Topology) -> float:
    """All pairs at once: the devices of a node share its link for what leaves the node."""
    part = size_bytes / topology.devices
    within = part * (topology.devices_per_node - 1) / topology.inside.bytes_per_s
    hop_us, seconds = topology.inside.latency_us, within
    if topology.outside is not None and topology.nodes > 1:
        leaving = part * (topology.devices - topology.devices_per_node) * topology.devices_per_node
        seconds = max(within, leaving / topology.outside.bytes_per_s)
        hop_us = topology.outside.latency_us
    return topology.overhead_us + hop_us + seconds * 1e6

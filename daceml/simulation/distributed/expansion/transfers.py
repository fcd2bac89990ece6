"""Collectives as transfers between devices, each behind those that bring what it sends.

Sources: Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms (JPDC '09) for rings; Li et al., Scaling
Distributed Machine Learning with the Parameter Server (OSDI '14); NVIDIA/nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daceml.errors import ExpansionError
from daceml.simulation.network.collectives import Collective, Way

_ROUNDS = {Collective.ALL_REDUCE: 2, Collective.REDUCE_SCATTER: 1, Collective.ALL_GATHER: 1}


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Some bytes from one device to another.

    Attributes:
        source, target: devices of the topology.
        after: numbers, in the same phase, of transfers that have to be there first; without any, the source
            sends as soon as it takes part.
    """

    source: int
    target: int
    size_bytes: float
    after: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TransferPhase:
    """Transfers in an order in which they can begin. A device goes on to the next phase when it has all.

    Attributes:
        way: the form of NCCL's protocol whose overhead, latency and share of bandwidth these have.
    """

    transfers: tuple[Transfer, ...]
    way: Way


def ring(collective: Collective, size_bytes: float, devices: Sequence[int]) -> tuple[Transfer, ...]:
    """Every device sends a part to the next one, and then what it has received, n - 1 times or twice that.

    Args:
        size_bytes: of the whole array.
        devices: in the order of the ring.
    Raises:
        ExpansionError: a collective that is not made of rounds.
    """
    if collective not in _ROUNDS:
        raise ExpansionError(
            f"a ring does no {collective}",
            why=f"it does {', '.join(_ROUNDS)}",
            fix="leave this collective as one task",
        )
    count = len(devices)
    made: list[Transfer] = []
    for number in range(_ROUNDS[collective] * (count - 1)):
        for place, device in enumerate(devices):
            # what the device before sent in the round before
            after = ((number - 1) * count + (place - 1) % count,) if number else ()
            following = devices[(place + 1) % count]
            made.append(Transfer(source=device, target=following, size_bytes=size_bytes / count, after=after))
    return tuple(made)


def push_pull(size_bytes: float, workers: Sequence[int], servers: Sequence[int]) -> tuple[Transfer, ...]:
    """Workers push a part of their gradients to each server, which answers all when it has that of each.

    Parts are equal; a worker begins with a server of its own, so that not all push to one at once. What stays
    on a machine takes no link.

    Args:
        size_bytes: of all gradients of a worker.
    Raises:
        ExpansionError: no worker or no server.
    """
    if not workers or not servers:
        raise ExpansionError(
            f"{len(workers)} workers and {len(servers)} servers exchange nothing",
            fix="give at least one of each",
        )
    part = size_bytes / len(servers)
    made: list[Transfer] = []
    pushed: dict[int, list[int]] = {server: [] for server in servers}
    for turn in range(len(servers)):
        for place, worker in enumerate(workers):
            server = servers[(place + turn) % len(servers)]
            if server != worker:
                pushed[server].append(len(made))
                made.append(Transfer(source=worker, target=server, size_bytes=part))
    for turn in range(len(workers)):
        for place, server in enumerate(servers):
            worker = workers[(place + turn) % len(workers)]
            if server != worker:
                made.append(
                    Transfer(source=server, target=worker, size_bytes=part, after=tuple(pushed[server]))
                )
    return tuple(made)

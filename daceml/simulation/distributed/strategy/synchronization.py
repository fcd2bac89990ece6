"""How long the sum of a tensor over all devices takes, whole or in parts that follow each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from daceml.errors import StrategyError
from daceml.simulation.network.collectives import (
    Algorithm,
    Collective,
    between_nodes,
    collective_us,
    inside_of,
)  # fmt: skip
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology

# Grid search of the number of parts, as dPRO does it
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_ALL_THE_SAME = 1 + 1e-9  # times that differ by rounding


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step of a synchronisation that has a link of its own: a push, a pull, a reduction within the nodes.

    Attributes:
        duration_us: of so many bytes of the tensor.
    """

    name: str
    duration_us: Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class Synchronization:
    """Stages that every part of a tensor passes in their order; a stage serves one part after another.

    Attributes:
        stages: at least one.
    """

    stages: tuple[Stage, ...]
    _best: dict[float, tuple[int, float]] = field(default_factory=dict[float, tuple[int, float]], repr=False)

    @classmethod
    def all_reduce(cls, topology: Topology, algorithm: Algorithm = "fastest") -> Synchronization:
        """By formula; between several nodes in three stages, which parts can pass at once."""
        if algorithm == "hierarchical" and topology.nodes > 1 and topology.devices_per_node > 1:
            inside, outside = inside_of(topology), between_nodes(topology)
            return cls(
                stages=(
                    _formula("reduce-scatter in nodes", Collective.REDUCE_SCATTER, inside),
                    _formula("all-reduce between nodes", Collective.ALL_REDUCE, outside),
                    _formula("all-gather in nodes", Collective.ALL_GATHER, inside),
                )
            )
        whole = lambda size: collective_us(Collective.ALL_REDUCE, size, topology, algorithm)  # noqa: E731
        return cls(stages=(Stage(name="all-reduce", duration_us=whole),))

    @classmethod
    def measured(cls, table: MeasuredCollective) -> Synchronization:
        """By a table of what was measured."""
        return cls(stages=(Stage(name=str(table.collective), duration_us=table.duration_us),))

    @classmethod
    def parameter_server(
        cls, *, bytes_per_s: float, latency_us: float, devices: int, servers: int
    ) -> Synchronization:
        """Push and pull through the servers' links, which all devices share.

        Raises:
            StrategyError: there is no server or no device, or a link that carries nothing.
        """
        if servers < 1 or devices < 1 or not bytes_per_s > 0:
            raise StrategyError(
                f"{devices} devices push to {servers} servers at {bytes_per_s} bytes a second",
                fix="give at least one of each, and a bandwidth above 0",
            )
        per_byte_us = max(1.0, devices / servers) / bytes_per_s * 1e6
        through = lambda size: latency_us + size * per_byte_us  # noqa: E731
        return cls(stages=(Stage(name="push", duration_us=through), Stage(name="pull", duration_us=through)))

    def part_us(self, size_bytes: float, parts: int = 1) -> tuple[float, ...]:
        """What one of so many equal parts of a tensor takes in each stage; nothing where nothing is sent."""
        if size_bytes <= 0:
            return (0.0,) * len(self.stages)
        return tuple(stage.duration_us(size_bytes / parts) for stage in self.stages)

    def sync_us(self, size_bytes: float, parts: int = 1) -> float:
        """From the first part's start to the last one's end, if nothing else is sent: dPRO's `t_sync`."""
        each = self.part_us(size_bytes, parts)
        return sum(each) + (parts - 1) * max(each)

    def best_parts(self, size_bytes: float) -> int:
        """The number of parts that a tensor passes soonest in; fewer where that is all the same."""
        return self._known(size_bytes)[0]

    def best_us(self, size_bytes: float) -> float:
        """`sync_us` in that number of parts."""
        return self._known(size_bytes)[1]

    def _known(self, size_bytes: float) -> tuple[int, float]:
        if size_bytes not in self._best:
            times = {parts: self.sync_us(size_bytes, parts) for parts in PARTS}
            least = min(times.values())
            parts = next(parts for parts, time_us in times.items() if time_us <= least * _ALL_THE_SAME)
            self._best[size_bytes] = parts, times[parts]
        return self._best[size_bytes]


def slower(synchronization: Synchronization, factor: float) -> Synchronization:
    """Every stage so many times as long."""

    def stage(known: Stage) -> Stage:
        return Stage(name=known.name, duration_us=lambda size: factor * known.duration_us(size))

    return Synchronization(stages=tuple(map(stage, synchronization.stages)))


def _formula(name: str, collective: Collective, topology: Topology) -> Stage:
    return Stage(name=name, duration_us=lambda size: collective_us(collective, size, topology, "ring"))


def total_us(synchronization: Synchronization, sizes: Sequence[float]) -> float:
    """Of tensors one after the other, each in its best number of parts."""
    return sum(synchronization.best_us(size) for size in sizes)

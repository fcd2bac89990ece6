"""Columns of tasks and edges that are made by the lot, before a graph is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.graph import NOTHING, Edges, Tasks
from daceml.simulation.task import EdgeKind, TaskKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """Some tasks of one kind, as columns of `Tasks`."""

    kind: TaskKind
    name: Ints
    layer: Ints
    phase: Ints
    lane: Ints
    duration_us: Floats
    size_bytes: Floats

    def __len__(self) -> int:
        return len(self.name)

    @classmethod
    def of(
        cls, *, kind: TaskKind, name: Ints, phase: Ints, lane: Ints, duration_us: Floats,
        layer: Ints | None = None, size_bytes: Floats | None = None,
    ) -> Columns:  # fmt: skip
        """Where a layer or size is left out, nobody has one."""
        return cls(
            kind=kind,
            name=name,
            layer=np.full(len(name), NOTHING, np.int64) if layer is None else layer,
            phase=phase,
            lane=lane,
            duration_us=duration_us,
            size_bytes=np.full(len(name), np.nan) if size_bytes is None else size_bytes,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """Some edges of one kind, as columns of `Edges`."""

    source: Ints
    target: Ints
    lag_us: Floats
    from_start: bool
    kind: EdgeKind

    @classmethod
    def of(
        cls, source: Ints, target: Ints, lag_us: Floats | float, *, from_start: bool, kind: EdgeKind
    ) -> Links:
        """With one lag for all, or one for each."""
        lags = np.broadcast_to(np.asarray(lag_us, np.float64), source.shape)
        return cls(source=source, target=target, lag_us=lags, from_start=from_start, kind=kind)


def tasks_of(parts: Sequence[Columns]) -> Tasks:
    """One part behind the other, all of step 0."""
    count = sum(map(len, parts))

    def joined(name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(part, name) for part in parts])

    return Tasks(
        key=np.arange(count, dtype=np.int64),
        name=joined("name").astype(np.int64),
        layer=joined("layer").astype(np.int64),
        operator=np.full(count, NOTHING, np.int64),
        kind=np.repeat([int(part.kind) for part in parts], list(map(len, parts))).astype(np.int64),
        phase=joined("phase").astype(np.int64),
        lane=joined("lane").astype(np.int64),
        step=np.zeros(count, np.int64),
        duration_us=joined("duration_us").astype(np.float64),
        gap_us=np.zeros(count),
        recorded_us=np.full(count, np.nan),
        size_bytes=joined("size_bytes").astype(np.float64),
        priority=np.zeros(count),
    )


def edges_of(parts: Sequence[Links]) -> Edges:
    """One part behind the other."""
    if not parts:
        return Edges.of(())
    lengths = [len(part.source) for part in parts]
    return Edges(
        source=np.concatenate([part.source for part in parts]).astype(np.int64),
        target=np.concatenate([part.target for part in parts]).astype(np.int64),
        lag_us=np.concatenate([part.lag_us for part in parts]).astype(np.float64),
        from_start=np.repeat([part.from_start for part in parts], lengths).astype(np.bool_),
        kind=np.repeat([int(part.kind) for part in parts], lengths).astype(np.int64),
    )

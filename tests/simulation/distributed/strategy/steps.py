"""Steps for tests of strategies."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.simulation.distributed.strategy.synchronization import Stage, Synchronization
from daceml.simulation.distributed.strategy.training_step import Computation, Memory, Part, TrainingStep

MB = 1e6


def chain(
    *backward: tuple[float, float],
    forward: Sequence[float] = (),
    update_us: float = 0.0,
    devices: int = 2,
    slowness: tuple[float, ...] = (),
    memory: Memory | None = None,
) -> TrainingStep:
    """From (microseconds, bytes of gradients) of each computation of the backward pass."""
    computations = [
        Computation(name=f"f{i}", duration_us=time_us, part=Part.FORWARD) for i, time_us in enumerate(forward)
    ]
    computations += [
        Computation(
            name=f"b{i}", duration_us=time_us, gradient_bytes=size, parameters=(f"w{i}",) if size else ()
        )
        for i, (time_us, size) in enumerate(backward)
    ]
    return TrainingStep(
        computations=tuple(computations),
        update_us=update_us,
        devices=devices,
        slowness=slowness,
        memory=memory,
    )


def sums(latency_us: float = 0.0, us_per_mb: float = 1.0, stages: int = 1) -> Synchronization:
    """A latency and a bandwidth for each stage."""
    stage = Stage(name="stage", duration_us=lambda size: latency_us + us_per_mb * size / MB)
    return Synchronization(stages=(stage,) * stages)


def all_fuse(saved_us: float):
    """Any neighbours become one, each saving so much."""
    return lambda members: sum(one.duration_us for one in members) - saved_us * (len(members) - 1)

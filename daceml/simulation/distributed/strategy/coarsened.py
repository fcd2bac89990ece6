"""The coarsened view: a chain of only as many computations as end tensors, on which a search has less to try.

Source: Hu et al., dPRO (MLSys '22), section 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from daceml.simulation.distributed.strategy.plan import FusedTime
from daceml.simulation.distributed.strategy.theorems import fuse_computations
from daceml.simulation.distributed.strategy.training_step import Computation, TrainingStep


def coarsened(step: TrainingStep, fused_us: FusedTime) -> TrainingStep:
    """The step whose computations without a tensor are one with the next that ends one, or the part's last.

    Of a chain that loses nothing: what follows each other without a tensor between can be fused wherever that
    is faster (Theorem 1 with nothing to send), and takes the same time together where it cannot.
    """
    made: list[Computation] = []
    waiting: list[Computation] = []
    for number, one in enumerate(step.computations):
        waiting.append(one)
        last = number + 1 == len(step.computations) or step.computations[number + 1].part is not one.part
        if one.gradient_bytes or last:
            made.append(_joined(waiting, fused_us))
            waiting = []
    return step.with_computations(made)


def _joined(computations: Sequence[Computation], fused_us: FusedTime) -> Computation:
    """One after the other, with neighbours fused from the front as long as that is faster."""
    runs: list[tuple[list[Computation], float]] = []
    for one in computations:
        if runs:
            previous, previous_us = runs[-1]
            fused = fused_us([*previous, one])
            if fused is not None and fuse_computations(
                previous_us=previous_us, this_us=one.duration_us, fused_us=fused, previous_sync_us=0.0
            ):
                runs[-1] = ([*previous, one], fused)
                continue
        runs.append(([one], one.duration_us))
    if len(computations) == 1:
        return computations[0]
    last = computations[-1]
    likeness = tuple(one.likeness for one in computations)
    return replace(
        last,
        name=f"{computations[0].name} .. {last.name}",
        duration_us=sum(time_us for _, time_us in runs),
        gradient_bytes=sum(one.gradient_bytes for one in computations),
        parameters=tuple(name for one in computations for name in one.parameters),
        product=any(one.product for one in computations),
        likeness=" + ".join(likeness) if all(likeness) else "",
        members=tuple(name for one in computations for name in one.members or (one.name,)),
    )

"""What may be chosen for a whole step: smaller batches one after another, recomputation, precision, sharding.

Each choice makes another step of a step. Where memory is too small, they come before the search for a plan,
as in dPRO; what they cost is found by searching the step that they make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from daceml.errors import StrategyError
from daceml.simulation.distributed.strategy.synchronization import Synchronization, slower
from daceml.simulation.distributed.strategy.training_step import Memory, Part, TrainingStep

State = tuple[TrainingStep, Synchronization]


class Choice(Protocol):
    """One thing that can be done to a step; users may write their own."""

    @property
    def name(self) -> str:
        """Shown beside what it brings."""
        ...

    def apply(self, step: TrainingStep, synchronization: Synchronization) -> State:
        """The step with it, and how its tensors are summed then.

        Raises:
            StrategyError: it cannot be done to this step.
        """
        ...


@dataclass(frozen=True)
class GradientAccumulation:
    """So many smaller batches one after the other; gradients are sent with the last of them."""

    batches: int

    @property
    def name(self) -> str:
        return f"gradient accumulation over {self.batches}"

    def apply(self, step: TrainingStep, synchronization: Synchronization) -> State:
        """What a computation takes beyond its floor shrinks with the samples."""
        if self.batches < 2:
            raise StrategyError(f"{self.batches} batches are accumulated", fix="give 2 or more")
        floor = step.floor_us
        smaller = [
            replace(
                one,
                duration_us=min(one.duration_us, floor) + max(0.0, one.duration_us - floor) / self.batches,
            )
            for one in step.computations
        ]
        memory = step.memory
        if memory is not None:
            memory = replace(
                memory,
                activations=memory.activations / self.batches,
                boundaries=memory.boundaries / self.batches,
            )
        batches = step.batches * self.batches
        return replace(step, computations=tuple(smaller), batches=batches, memory=memory), synchronization


@dataclass(frozen=True)
class Recomputation:
    """Of each block only what enters it is kept; its forward pass is run again before its backward pass."""

    name: str = "recomputation"

    def apply(self, step: TrainingStep, synchronization: Synchronization) -> State:
        """Every computation of the backward pass is preceded by its share of the forward pass."""
        forward_us = sum(one.duration_us for one in step.computations if one.part is Part.FORWARD)
        backward_us = sum(one.duration_us for one in step.computations if one.part is Part.BACKWARD)
        factor = 1 + forward_us / backward_us if backward_us > 0 else 1.0
        computations = [
            replace(one, duration_us=one.duration_us * factor) if one.part is Part.BACKWARD else one
            for one in step.computations
        ]
        memory = step.memory
        if memory is not None:
            inside = (memory.activations - memory.boundaries) / memory.blocks
            memory = replace(memory, activations=memory.boundaries + inside)
        return replace(step, computations=tuple(computations), memory=memory), synchronization


@dataclass(frozen=True, kw_only=True)
class MixedPrecision:
    """Products in 16 bits, with parameters and gradients as they are: autocast.

    Attributes:
        products, others: how many times as fast they are.
        activations: which share of their bytes is left.
    """

    products: float
    others: float = 1.0
    activations: float = 0.5
    name: str = "mixed precision"

    def apply(self, step: TrainingStep, synchronization: Synchronization) -> State:
        """No computation becomes shorter than the floor that it had above it."""
        computations = [
            replace(
                one,
                duration_us=max(
                    min(one.duration_us, step.floor_us),
                    one.duration_us / (self.products if one.product else self.others),
                ),
            )
            for one in step.computations
        ]
        memory = step.memory
        if memory is not None:
            memory = replace(
                memory,
                activations=memory.activations * self.activations,
                boundaries=memory.boundaries * self.activations,
            )
        return replace(step, computations=tuple(computations), memory=memory), synchronization


@dataclass(frozen=True)
class Sharding:
    """States of the optimizer (1), gradients too (2), and parameters too (3) are spread over devices: ZeRO.

    Source: Rajbhandari et al., ZeRO (SC '20), section 7: levels 1 and 2 send as much as an all-reduce,
    level 3 half as much again.
    """

    level: int

    @property
    def name(self) -> str:
        return f"sharding, level {self.level}"

    def apply(self, step: TrainingStep, synchronization: Synchronization) -> State:
        """Each device updates its share."""
        if self.level not in (1, 2, 3):
            raise StrategyError(f"there is no level {self.level} of sharding", fix="give 1, 2 or 3")
        share = 1 / step.devices
        memory = step.memory
        if memory is not None:
            memory = replace(
                memory,
                optimizer=memory.optimizer * share,
                gradients=memory.gradients * (share if self.level > 1 else 1.0),
                parameters=memory.parameters * (share if self.level > 2 else 1.0),
            )
        sent = slower(synchronization, 1.5) if self.level == 3 else synchronization
        return replace(step, update_us=step.update_us * share, memory=memory), sent


def combinations(groups: Sequence[Sequence[Choice]]) -> Iterator[tuple[Choice, ...]]:
    """At most one of each group, in the order of the groups; nothing at all comes first."""
    options: Iterable[Sequence[Choice | None]] = [(None, *group) for group in groups]
    for combined in product(*options):
        yield tuple(one for one in combined if one is not None)


def applied(choices: Sequence[Choice], step: TrainingStep, synchronization: Synchronization) -> State:
    """One after the other."""
    for choice in choices:
        step, synchronization = choice.apply(step, synchronization)
    return step, synchronization


def fits(memory: Memory | None, budget_bytes: float | None) -> bool:
    """Whether a step can run in so much memory; where either is not known, it is taken to."""
    return memory is None or budget_bytes is None or memory.peak_bytes <= budget_bytes


# Of one kind only one can be chosen; what a user registers is a kind of its own.
Registry = dict[str, Callable[[TrainingStep], Sequence[Choice]]]

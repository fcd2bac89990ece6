"""A data-parallel training step as a search sees it: a chain of computations, of which some end gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from daceml.errors import StrategyError


class Part(Enum):
    """The part of a step that a computation belongs to; only neighbours of one part can be fused."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, kw_only=True)
class Computation:
    """What a device does without a pause.

    Attributes:
        duration_us: alone, on every device.
        gradient_bytes: of the gradients that are complete when it ends; 0 where it ends none.
        parameters: names of those gradients' parameters.
        product: whether it multiplies matrices, or is limited by arithmetic in another way.
        likeness: equal for computations that are the same work in another block of the model, such as
            "aten::mm 4096x1024x1024"; empty where nobody knows.
        members: names of the computations that became this one, in their order; () where it is one.
    """

    name: str
    duration_us: float
    part: Part = Part.BACKWARD
    gradient_bytes: float = 0.0
    parameters: tuple[str, ...] = ()
    product: bool = False
    likeness: str = ""
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.duration_us < float("inf") or not 0 <= self.gradient_bytes < float("inf"):
            raise StrategyError(
                f"{self.name} takes {self.duration_us} us and ends {self.gradient_bytes} bytes of gradients",
                fix="give finite numbers that are not below 0",
            )


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one device.

    Attributes:
        parameters, gradients, optimizer: what stays.
        activations: kept from the forward for the backward pass.
        boundaries: of them, what enters the blocks of the model: all that recomputation keeps.
        blocks: of the model, of which one at a time is computed again.
        other: context, workspaces, buckets.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    boundaries: float
    blocks: int = 1
    other: float = 0.0

    @property
    def peak_bytes(self) -> float:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.other


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """What every one of some equal devices does in a step.

    Attributes:
        computations: first all of the forward, then all of the backward pass, in their order.
        update_us: of the optimizer, when all gradients are summed.
        devices: that sum their gradients.
        slowness: how many times as long each device takes; () where all are alike.
        batches: that a step goes through one after the other, each with all computations; gradients are sent
            with the last one.
        floor_us: what the smallest computation takes, however few samples there are.
        memory: None where nobody knows.
    """

    computations: tuple[Computation, ...]
    update_us: float
    devices: int
    slowness: tuple[float, ...] = ()
    batches: int = 1
    floor_us: float = 0.0
    memory: Memory | None = None

    def __post_init__(self) -> None:
        if self.devices < 1 or len(self.slowness) not in (0, self.devices):
            raise StrategyError(
                f"{self.devices} devices, and {len(self.slowness)} of them are said to be slower",
                fix="give at least one device, and a factor for each or for none",
            )
        if self.batches < 1:
            raise StrategyError(f"a step of {self.batches} batches", fix="give at least one")
        if not any(one.gradient_bytes for one in self.computations):
            raise StrategyError(
                "the step computes no gradients", why="without them nothing is sent", fix="record a training"
                " step with daceml.profile(model), which knows the gradients",
            )  # fmt: skip
        parts = [one.part for one in self.computations]
        if parts != sorted(parts, key=[Part.FORWARD, Part.BACKWARD].index):
            raise StrategyError(
                "the forward pass begins behind the backward pass", fix="give all of the forward pass first"
            )

    @property
    def gradient_bytes(self) -> float:
        """Of all parameters."""
        return sum(one.gradient_bytes for one in self.computations)

    @property
    def computing_us(self) -> float:
        """Both passes of all batches and the update, of a device that waits for nobody."""
        return self.batches * sum(one.duration_us for one in self.computations) + self.update_us

    def with_computations(self, computations: Sequence[Computation]) -> TrainingStep:
        """The same step with others."""
        return replace(self, computations=tuple(computations))

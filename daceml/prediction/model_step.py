"""One step of a model as a list of operations: what is known of it before any device has run it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from daceml.devices.roofline import Work
from daceml.operations.database.records import Operand, Operation
from daceml.simulation.memory.allocations import Allocations

StepPhase = Literal["forward", "backward", "optimizer"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
PHASES: tuple[StepPhase, ...] = ("forward", "backward", "optimizer")


@dataclass(frozen=True, kw_only=True)
class StepOperation:
    """One call of an operator.

    Attributes:
        results: tensors that it returns, in its order.
        work: what it computes and moves; None where nobody has said it of this operator.
        layer: the module that it belongs to ("encoder.0.attention"); "" is the outermost one.
        ready: names of the parameters whose gradients are complete when it has run.
        reads, writes: numbers of the memories of its operands and results; a view has its base's. Empty where
            nobody has looked.
    """

    operation: Operation
    results: tuple[Operand, ...] = ()
    work: Work | None = None
    phase: StepPhase = "forward"
    layer: str = ""
    ready: tuple[str, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()

    @property
    def launches(self) -> bool:
        """Whether a device has something to do: a view has not."""
        return self.work is None or self.work.flops > 0 or self.work.bytes_moved > 0


@dataclass(frozen=True, kw_only=True)
class StepParameter:
    """A parameter that is trained.

    Attributes:
        name: as in the model's state_dict.
        layer: the module that has it.
        element: type of its gradient's elements.
    """

    name: str
    layer: str
    size_bytes: int
    element: str


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes that a step holds on its device, as torch's allocator counts them: allocated, not reserved.

    Attributes:
        parameters, buffers, gradients, optimizer: what lives as long as the training, gradients from the
            backward phase on.
        saved: alive when the forward phase is over and before the backward phase begins, besides parameters,
            buffers and optimizer states: inputs, results, and what the backward phase will read.
        peak: the most at any moment.
        allocations: every block by the numbers of the operations that take and give it back, the last one
            that ran before it was freed; None where only sums are known.
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    saved: int
    peak: int
    allocations: Allocations | None = None


@dataclass(frozen=True, kw_only=True)
class ModelStep:
    """What a step does on one device, in its order.

    Attributes:
        name: of the model.
        parameters: those that are trained, in the order of registration.
        memory: None where it does not follow from what is known.
        samples: that the step takes; None where inputs do not tell.
        notes: what was assumed when it was made.
    """

    name: str
    operations: tuple[StepOperation, ...]
    parameters: tuple[StepParameter, ...] = ()
    memory: StepMemory | None = None
    samples: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        """Whether it has a backward phase."""
        return any(one.phase == "backward" for one in self.operations)

    @property
    def flops(self) -> float:
        """Of all operations whose work is known."""
        return sum(one.work.flops for one in self.operations if one.work is not None)

    def of_phase(self, phase: StepPhase) -> Iterable[StepOperation]:
        """The operations of one phase, in their order."""
        return (one for one in self.operations if one.phase == phase)

"""Steps from sentences, for tests: "gemm forward encoder.0 10" is an operation that takes 10 us."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.devices.roofline import Work
from daceml.devices.specification import Device, Sourced
from daceml.operations.database.records import Operand, Operation
from daceml.operations.estimate import Estimate
from daceml.prediction.model_step import ModelStep, StepMemory, StepOperation, StepParameter


def step_of(
    *sentences: str, parameters: Sequence[StepParameter] = (), memory: StepMemory | None = None
) -> ModelStep:
    """A step whose operations are `NAME PHASE LAYER MICROSECONDS [ready NAME …]`; 0 us is a view."""
    operations: list[StepOperation] = []
    for number, sentence in enumerate(sentences):
        name, phase, layer, us, *ready = sentence.split()
        # the shape tells operations apart, and the dtype nothing
        operand = Operand(shape=(number + 1, round(float(us) * 1000) + 1), dtype="float32")
        operations.append(
            StepOperation(
                operation=Operation(operator=name, operands=(operand,), attributes={"us": float(us)}),
                work=Work(flops=0.0, bytes_moved=float(us)),
                phase=phase,  # pyright: ignore[reportArgumentType]
                layer="" if layer == "-" else layer,
                ready=tuple(ready[1:]),
            )
        )
    return ModelStep(
        name="told", operations=tuple(operations), parameters=tuple(parameters), memory=memory, samples=4
    )


def parameter(name: str, megabytes: float) -> StepParameter:
    return StepParameter(
        name=name, layer=name.rpartition(".")[0], size_bytes=round(megabytes * 2**20), element="float32"
    )


class Told:
    """A source of durations that says what the sentence says, give or take a share."""

    def __init__(self, spread: float = 0.0) -> None:
        self.spread = spread

    def estimate(self, operation: Operation, device: Device) -> Estimate | None:
        us = operation.attributes.get("us")
        if not isinstance(us, float):
            return None
        return Estimate(
            duration_us=us, low_us=us * (1 - self.spread), high_us=us * (1 + self.spread), basis="learned"
        )


def sourced(value: float) -> Sourced:
    return Sourced(value=value, source="a test", verified=True)


PLAIN = Device(
    name="Plain-1",
    kind="gpu",
    vendor="nobody",
    architecture="none",
    memory_bytes=sourced(8e9),
    memory_bytes_per_s=sourced(1e12),
    peak_flops_per_s={"float32": sourced(1e13)},
    link_bytes_per_s=sourced(2e11),
)

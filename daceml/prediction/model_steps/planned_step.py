"""A step from shapes as a chain of computations, for the search of what to fuse and what to send together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from daceml.devices.roofline import USUAL_FLOOR_US, expected
from daceml.devices.specification import Device
from daceml.operations.work.operator_class import operator_class
from daceml.prediction.model_step import ModelStep, StepOperation
from daceml.prediction.model_steps.fused_step import kernels, last_reads
from daceml.prediction.model_steps.step_durations import StepDurations
from daceml.simulation.distributed.strategy.training_step import Computation, Memory, Part, TrainingStep

_PRODUCTS = ("product", "convolution", "attention")


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedStep:
    """A step, and what its computations would take if their loops were joined.

    Attributes:
        training: its computations are the operations that launch something, called "aten::mm 17" by their
            places in `step`.
    """

    step: ModelStep
    durations: StepDurations
    device: Device
    training: TrainingStep
    _places: dict[str, int]
    _last_read: dict[int, int]
    _known: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float], repr=False)

    def fused_us(self, members: Sequence[Computation]) -> float | None:
        """How long neighbours take when loops that read each other's results are one kernel, if less long.

        A kernel takes what a roofline says of what is left to move, and no longer than its parts.
        """
        names = [name for one in members for name in one.members or (one.name,)]
        if not all(name in self._places for name in names):
            return None
        first, last = self._places[names[0]], self._places[names[-1]]
        if (first, last) not in self._known:
            self._known[first, last] = self._joined_us(first, last)
        fused_us = self._known[first, last]
        return fused_us if fused_us < sum(one.duration_us for one in members) else None

    def _joined_us(self, first: int, last: int) -> float:
        alone_us = dict(zip(map(id, self.step.operations), self.durations.likely_us.tolist(), strict=True))
        total_us = 0.0
        for one in kernels(self.step.operations, range(first, last + 1), self._last_read):
            known = alone_us.get(id(one))
            if known is not None:
                total_us += known
            elif one.work is not None:
                total_us += expected(one.work, self.device).duration_us
        return min(total_us, sum(self.durations.likely_us[first : last + 1].tolist()))


def planned_step(step: ModelStep, durations: StepDurations, device: Device, *, devices: int) -> PlannedStep:
    """A step that so many devices share, each with such a batch.

    Raises:
        StrategyError: it computes no gradients.
    """
    sizes = {one.name: float(one.size_bytes) for one in step.parameters}
    computations: list[Computation] = []
    places: dict[str, int] = {}
    update_us = 0.0
    pending: list[str] = []  # gradients that are complete behind a view
    for place, (one, time_us) in enumerate(zip(step.operations, durations.likely_us.tolist(), strict=True)):
        if one.phase == "optimizer":
            update_us += time_us
            continue
        pending += one.ready
        if not one.launches:
            continue
        name = f"{one.operation.operator} {place}"
        places[name] = place
        computations.append(
            Computation(
                name=name,
                duration_us=time_us,
                part=Part.FORWARD if one.phase == "forward" else Part.BACKWARD,
                gradient_bytes=sum(sizes.get(known, 0.0) for known in pending),
                parameters=tuple(known for known in pending if known in sizes),
                product=operator_class(one.operation.operator) in _PRODUCTS,
                likeness=_likeness(one),
            )
        )
        pending = []
    # of a gradient that nobody saw, as of one that another name stands for, it is the end of the pass
    seen = {known for one in computations for known in one.parameters}
    unseen = tuple(known for known in sizes if known not in seen)
    if unseen and computations:
        last = computations[-1]
        computations[-1] = replace(
            last,
            gradient_bytes=last.gradient_bytes + sum(sizes[known] for known in unseen),
            parameters=last.parameters + unseen,
        )
    training = TrainingStep(
        computations=tuple(computations),
        update_us=update_us,
        devices=devices,
        floor_us=USUAL_FLOOR_US if device.floor_us is None else device.floor_us.value,
        memory=_memory(step),
    )
    return PlannedStep(
        step=step, durations=durations, device=device, training=training, _places=places,
        _last_read=last_reads(step.operations),
    )  # fmt: skip


def _likeness(one: StepOperation) -> str:
    operands = ", ".join(f"{operand.dtype}{list(operand.shape)}" for operand in one.operation.operands)
    return f"{one.operation.operator}({operands}) of {len(one.ready)}"


def _memory(step: ModelStep) -> Memory | None:
    """What blocks keep at their entrances is not known of a step: recomputation is not offered by it."""
    known = step.memory
    if known is None:
        return None
    kept = known.peak - known.parameters - known.buffers - known.gradients - known.optimizer
    activations = float(max(known.saved, kept))
    return Memory(
        parameters=float(known.parameters + known.buffers),
        gradients=float(known.gradients),
        optimizer=float(known.optimizer),
        activations=activations,
        boundaries=activations,
    )

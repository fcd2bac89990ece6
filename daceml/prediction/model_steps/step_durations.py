"""How long every operation of a step takes on a device, and where the errors of these estimates come from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from daceml.devices.roofline import Work, expected
from daceml.devices.specification import Device
from daceml.errors import DeviceError, EntryError
from daceml.operations.duration_chain import DurationLadder, roofline_estimate
from daceml.operations.estimate import Estimate
from daceml.operations.work.operator_class import OperatorClass, operator_class
from daceml.prediction.model_step import ModelStep, Precision, StepOperation
from daceml.simulation.graph import Floats

_PRODUCTS: tuple[OperatorClass, ...] = ("product", "convolution", "attention")


@dataclass(frozen=True, kw_only=True, eq=False)
class StepDurations:
    """Of n operations, microseconds of the device.

    Attributes:
        estimates: [n] of each; zero for what launches nothing.
        sources: [n] names of the sources of error. Errors that share a source are taken to be one: all of
            them are high or low together. Errors of two sources are taken to be independent.
        notes: what had to be assumed, each once.
    """

    estimates: tuple[Estimate, ...]
    sources: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def likely_us(self) -> Floats:
        """[n] what is likely."""
        return np.array([one.duration_us for one in self.estimates], np.float64)

    def at(self, source: str, *, high: bool) -> Floats:
        """[n] with the errors of one source at their limit, and none of the others."""
        return np.array(
            [
                one.duration_us if name != source else one.high_us if high else one.low_us
                for one, name in zip(self.estimates, self.sources, strict=True)
            ],
            np.float64,
        )

    def with_small_sources_joined(self, share: float, name: str) -> StepDurations:
        """With one source in the place of all those that have less than a share of all that is uncertain."""
        apart_us: dict[str, float] = {}
        for one, source in zip(self.estimates, self.sources, strict=True):
            apart_us[source] = apart_us.get(source, 0.0) + one.high_us - one.low_us
        least_us = share * sum(apart_us.values())
        sources = (name if source and apart_us[source] < least_us else source for source in self.sources)
        return replace(self, sources=tuple(sources))


def step_durations(
    step: ModelStep, device: Device, ladder: DurationLadder, *, precision: Precision = "fp32"
) -> StepDurations:
    """Durations of a step's operations; what no source knows is taken to move its tensors once.

    Errors are grouped by what they come from: a roofline's by the rate that limits the operation, those of
    measurements and of models by the kind of operator.

    Raises:
        DeviceError: a rate of the device is not known that some operation needs.
    """
    known: dict[str, tuple[Estimate, str]] = {}
    notes: dict[str, None] = {}
    found: list[tuple[Estimate, str]] = []
    for one in step.operations:
        if not one.launches:
            found.append((_NOTHING, ""))
            continue
        key = repr((one.operation, one.results))
        if key not in known:
            known[key] = _estimated(one, device, ladder, precision, notes)
        found.append(known[key])
        notes |= dict.fromkeys(known[key][0].notes)
    return StepDurations(
        estimates=tuple(estimate for estimate, _ in found),
        sources=tuple(source for _, source in found),
        notes=tuple(notes),
    )


_NOTHING = Estimate(duration_us=0.0, low_us=0.0, high_us=0.0, basis="roofline")


def _estimated(
    one: StepOperation, device: Device, ladder: DurationLadder, precision: Precision, notes: dict[str, None]
) -> tuple[Estimate, str]:
    kind = operator_class(one.operation.operator)
    work = _with_precision(one.work, kind, device, precision, notes)
    estimate = ladder.estimate(one.operation, device, work=work)
    if estimate is None:
        work = _moved(one)
        told = roofline_estimate(work, device, kind)
        why = f"unknown operator {one.operation.operator}: its tensors are counted as moved once"
        estimate = replace(told, outside=why)
    if estimate.basis in ("roofline", "scaled") and work is not None:
        return estimate, f"{estimate.basis}, limited by {expected(work, device).limited_by}"
    return estimate, f"{estimate.basis}, {kind}"


def _with_precision(
    work: Work | None, kind: OperatorClass, device: Device, precision: Precision, notes: dict[str, None]
) -> Work | None:
    if work is None or precision != "tf32" or kind not in _PRODUCTS or work.arithmetic != "float32":
        return work
    try:
        device.need("peak_flops_per_s.tf32", why="")
    except DeviceError:
        notes[f"{device.name} has no tf32 that is known: products stay in float32"] = None
        return work
    return replace(work, arithmetic="tf32")


def _moved(one: StepOperation) -> Work:
    try:
        moved = sum(operand.size_bytes for operand in (*one.operation.operands, *one.results))
    except EntryError:  # elements without a size: the floor of a launch is left
        moved = 0
    return Work(flops=0.0, bytes_moved=float(max(moved, 1)))

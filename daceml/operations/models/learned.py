"""Durations from models that were fitted to a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from daceml.devices.specification import Device
from daceml.operations.database.records import Mode, Operation
from daceml.operations.database.store import OpDatabase
from daceml.operations.estimate import Estimate
from daceml.operations.models.features import described
from daceml.operations.models.observations import DeviceOf
from daceml.operations.models.operator_model import OperatorModel, kind_of

Array = NDArray[np.float64]

# Of the shortest call: what takes less than so many of them may wait for its launch
_CALLS = 2.0
_TIMINGS: tuple[Mode, ...] = ("graph", "eager", "cold")


class LearnedDurations:
    """A source of durations: models by kind of operation and device.

    Of several for the same, one that asks for other devices' durations is taken where all of these are
    known, else one that asks for none; of several timings that of a captured graph comes first.

    Args:
        models: of any kinds, devices and timings.
        database: where durations on a model's reference devices are looked up; without it they are not known.
        device_of: figures of these devices; needed with a database.
    """

    def __init__(
        self,
        models: Iterable[OperatorModel],
        *,
        database: OpDatabase | None = None,
        device_of: DeviceOf | None = None,
    ) -> None:
        self._models: defaultdict[tuple[str, str], list[OperatorModel]] = defaultdict(list)
        for one in models:
            self._models[one.device, one.kind].append(one)
        for several in self._models.values():
            several.sort(key=lambda one: (_TIMINGS.index(one.timing), not one.references))
        self._database = database
        self._device_of = device_of

    def estimate(self, operation: Operation, device: Device) -> Estimate | None:
        """None where no model knows such operations on this device."""
        for model in self._models.get((device.name, kind_of(operation)), ()):
            references = self._references(model, [operation])
            known = all(
                name in references and np.isfinite(references[name]).all() for name in model.references
            )
            if known:
                told = model.estimates([operation], device, references)[0]
                told = replace(told, notes=(*told.notes, f"models of rows that were timed {model.timing}"))
                return _perhaps_its_launch(told, model, operation, device)
        return None

    def _references(self, model: OperatorModel, operations: Sequence[Operation]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for name in model.references:
            device = None if self._device_of is None else self._device_of(name)
            if device is None or self._database is None:
                continue
            seconds = np.array([self._seconds(one, device, model.timing) for one in operations])
            found[name] = np.log(seconds) - described(operations, device, floor_s=model.floor_s).base
        return found

    def _seconds(self, operation: Operation, device: Device, timing: Mode) -> float:
        assert self._database is not None
        for name in (device.name, *device.aliases):
            for entry in self._database.find(operation, device=name, mode=timing):
                if entry.provenance != "predicted" and entry.duration.median_s > 0:
                    return entry.duration.median_s
        return float("nan")


def _perhaps_its_launch(
    told: Estimate, model: OperatorModel, operation: Operation, device: Device
) -> Estimate:
    """Calls of a device that are hardly longer than the shortest: the device may be done long before."""
    if device.kind != "gpu" or model.timing != "eager" or told.duration_us > _CALLS * 1e6 * model.floor_s:
        return told
    least_us = 1e6 * float(np.exp(described([operation], device, floor_s=model.floor_s).least[0]))
    return replace(
        told,
        low_us=min(told.low_us, least_us),
        outside=told.outside or "it was timed with its launch, which is most of this; the device takes less",
    )

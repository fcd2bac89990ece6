"""Durations from models that were fitted to a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from daceml.devices.specification import Device
from daceml.profiling.database.records import Mode, Operation
from daceml.profiling.database.store import OpDatabase
from daceml.profiling.estimation.estimate import Estimate
from daceml.profiling.estimation.features import described
from daceml.profiling.estimation.observations import DeviceOf
from daceml.profiling.estimation.operator_model import OperatorModel, kind_of

Array = NDArray[np.float64]


class LearnedDurations:
    """A source of durations: one model for each kind of operation and device.

    Args:
        models: of one timing; of two for the same, the later one counts.
        database: where durations on a model's reference devices are looked up; without it they are not known.
        device_of: figures of these devices; needed with a database.
    """

    def __init__(
        self,
        models: Iterable[OperatorModel],
        *,
        timing: Mode = "eager",
        database: OpDatabase | None = None,
        device_of: DeviceOf | None = None,
    ) -> None:
        self._models = {(one.device, one.kind): one for one in models if one.timing == timing}
        self._timing: Mode = timing
        self._database = database
        self._device_of = device_of

    def estimate(self, operation: Operation, device: Device) -> Estimate | None:
        """None where no model knows such operations on this device."""
        model = self._models.get((device.name, kind_of(operation)))
        if model is None:
            return None
        return model.estimates([operation], device, self._references(model, [operation]))[0]

    def _references(self, model: OperatorModel, operations: Sequence[Operation]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for name in model.references:
            device = None if self._device_of is None else self._device_of(name)
            if device is None or self._database is None:
                continue
            seconds = np.array([self._seconds(one, device) for one in operations])
            found[name] = np.log(seconds) - described(operations, device, floor_s=model.floor_s).base
        return found

    def _seconds(self, operation: Operation, device: Device) -> float:
        assert self._database is not None
        for name in (device.name, *device.aliases):
            for entry in self._database.find(operation, device=name, mode=self._timing):
                if entry.provenance != "predicted" and entry.duration.median_s > 0:
                    return entry.duration.median_s
        return float("nan")

"""A step that was recorded, and the same step on other devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from daceml.devices.catalogue import find_device
from daceml.devices.specification import Device
from daceml.operations.estimate import DurationSource
from daceml.prediction.recorded_runs import operator_run
from daceml.prediction.recorded_runs.cross_device import RecordedRun
from daceml.prediction.recorded_runs.device_prediction import DevicePrediction
from daceml.prediction.recorded_runs.retiming_rules import Rule
from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate


@dataclass(frozen=True, kw_only=True)
class TrackedTrace:
    """What `OperationTracker` recorded, or any trace.

    Attributes:
        origin: the device that it ran on, as `find_device` takes it; None reads the header of a run on a GPU,
            and of a run on a processor says that it is not described.
    """

    trace: Trace
    origin: str | Device | None = None

    @property
    def has_device(self) -> bool:
        """Whether a GPU ran it."""
        return len(self.trace.events.of(EventKind.KERNEL)) > 0

    @cached_property
    def run_time_ms(self) -> float:
        """Of the recorded step, with what the profiler cost."""
        return step_times(simulate(build(self.trace))).step_us / 1e3

    def to_device(
        self,
        device: str | Device,
        *,
        source: DurationSource | None = None,
        references: Rule | None = None,
        batch: float | None = None,
        host_factor: float = 1.0,
    ) -> DevicePrediction:
        """The same step on another device.

        Args:
            device: as `find_device` takes it: "H100", or a file that describes one.
            source: of durations of operations there: the operation database, a learned model.
            references: what other runs that were recorded on both GPUs say (`reference_runs`).
            batch: samples in the step, for samples a second.
            host_factor: how many times as long the host's threads take there.
        Raises:
            DeviceError: no device has this name.
            PredictionError: nothing that ran can be predicted.
        """
        destination = find_device(device) if isinstance(device, str) else device
        if self.has_device:
            return self._run.on(
                destination, source=source, references=references, batch=batch, host_factor=host_factor
            )
        origin = find_device(self.origin) if isinstance(self.origin, str) else self.origin
        return operator_run.on_device(self.trace, destination, origin=origin, source=source, batch=batch)

    @cached_property
    def _run(self) -> RecordedRun:
        return RecordedRun.of(self.trace, origin=self.origin)

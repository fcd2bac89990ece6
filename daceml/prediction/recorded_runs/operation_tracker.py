"""`daceml.OperationTracker`: one step of anything is recorded, and predicted for other devices.

Source of the interface: Yu et al., Habitat (ATC '21), listing 1.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from daceml.devices.specification import Device
from daceml.errors import TrackingError
from daceml.prediction.recorded_runs.tracked_step import TrackedTrace
from daceml.profiling.recording.recording import Recording
from daceml.profiling.recording.step_plan import Plan


class OperationTracker:
    """Records what a block of code does.

        tracker = daceml.OperationTracker()
        with tracker.track():
            train_one_step()
        tracker.trace.to_device("H100").run_time_ms

    Run the step a few times before it is tracked: a first one allocates, and chooses kernels.

    Args:
        device: that runs it, as `daceml devices` names it, or a file that describes it. Of a GPU the profiler
            says which it is; a processor is not known without one.
    """

    def __init__(self, device: str | Device | None = None) -> None:
        self.device = device
        self._tracked: TrackedTrace | None = None
        self._tracking = False

    @contextmanager
    def track(self) -> Generator[None]:
        """Record the block as one step; a later block replaces what an earlier one recorded.

        Raises:
            RecordingError: torch's profiler, or another recording, is running.
            TrackingError: this tracker is tracking already.
        """
        if self._tracking:
            raise TrackingError(
                "this tracker is tracking already", why="track() was called within track()",
                fix="leave the first block before the second begins",
            )  # fmt: skip
        self._tracking = True
        try:
            with Recording(None, plan=Plan(steps=1, warmup=1, unprofiled=0)) as recording:
                recording.step()  # the profiler has warmed up: nothing ran
                yield
                recording.step()
            self._tracked = TrackedTrace(trace=recording.trace, origin=self.device)
        finally:
            self._tracking = False

    @property
    def trace(self) -> TrackedTrace:
        """What was recorded; see `get_tracked_trace`."""
        return self.get_tracked_trace()

    def get_tracked_trace(self) -> TrackedTrace:
        """What was recorded.

        Raises:
            TrackingError: no block has ended.
        """
        if self._tracked is None:
            raise TrackingError(
                "nothing was tracked",
                why="the block has not ended"
                if self._tracking
                else "track() was not called, or its block raised",
                fix="with tracker.track(): step()",
            )
        return self._tracked

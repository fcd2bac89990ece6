"""How long steps take: by the processor's clock, or by events of a device that nobody waits for."""

from __future__ import annotations

import time
from typing import Any


class StepClock:
    """Durations of consecutive steps.

    On a device an event is recorded at each boundary; the device is waited for in `start` and `stop` only.

    Args:
        on_device: whether the steps run on the current CUDA device.
    """

    def __init__(self, on_device: bool) -> None:
        self._on_device = on_device
        self._marks: list[Any] = []

    def start(self) -> None:
        """A first step begins."""
        if self._on_device:
            _synchronize()
        self._marks = []
        self.mark()

    def mark(self) -> None:
        """A step ends, and the next one begins."""
        if self._on_device:
            import torch

            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def stop(self) -> list[float]:
        """Microseconds of every complete step since `start`."""
        if self._on_device:
            _synchronize()
            pairs = zip(self._marks, self._marks[1:], strict=False)
            return [1e3 * first.elapsed_time(second) for first, second in pairs]
        return [(second - first) / 1e3 for first, second in zip(self._marks, self._marks[1:], strict=False)]


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()

"""Steps that nobody disturbed: they had a core for themselves, and the system gave them no fresh pages."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.interleave import Step

OWN_SHARE = 0.97  # of the time of a step that the process itself worked for it; below, it was disturbed
FEWEST = 5
# That the system takes to clear a page of 4 KiB and map it: steps of one run, with and without 24,000 faults,
# differ by 47 ms. The profiler's own small blocks split the heap, so that steps which it watches get more.
FAULT_US = 2.0


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step of a process with a single thread.

    Attributes:
        wall_us: by the clock.
        processor_us: that the processor worked for this process.
        faults: pages that the system gave it.
    """

    wall_us: float
    processor_us: float
    faults: int = 0

    @property
    def own_share(self) -> float:
        """1 where nobody else used the core, and all memory was there."""
        return (self.processor_us - self.faults * FAULT_US) / self.wall_us


def timed(step: Step) -> StepTime:
    """Run a step."""
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    own, wall = time.process_time(), time.perf_counter()
    step()
    wall_s, own_s = time.perf_counter() - wall, time.process_time() - own
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return StepTime(wall_us=wall_s * 1e6, processor_us=own_s * 1e6, faults=faults)


def clean(steps: Sequence[StepTime]) -> int:
    """How many steps nobody disturbed."""
    return sum(step.own_share >= OWN_SHARE for step in steps)


def undisturbed(steps: Sequence[StepTime]) -> list[int]:
    """Which steps nobody disturbed; where these are few, those that were disturbed least."""
    order = sorted(range(len(steps)), key=lambda index: -steps[index].own_share)
    return sorted(order[: max(clean(steps), FEWEST)])


def median_us(steps: Sequence[StepTime]) -> float:
    """The median by the clock of those that nobody disturbed."""
    return median(steps[index].wall_us for index in undisturbed(steps))

"""What to know before an answer is read: a replay that misses the run, and a host that limits it.

Threads of a host take what they took under the profiler. What recording cost them is not in most traces, so
that a run which the host limits is known within limits only: it takes what its device needs at least, and
what its host was recorded to take at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind

MOST_ERROR = 0.1  # of a replay, a share of the step; beyond that the model misses the run
_HOST_LIMITS = 0.9  # of a step; where the device needs less, it waits for the host


@dataclass(frozen=True, kw_only=True)
class HostLimit:
    """A step that waits for the host; times in microseconds.

    Attributes:
        device_us: that it takes if threads cost nothing, except for loading batches.
        recorded_us: that it takes with threads as slow as they were recorded.
    """

    step_us: float
    device_us: float
    recorded_us: float

    def __str__(self) -> str:
        return (
            f"the host limits this run: of a step of {self.step_us / 1e3:.2f} ms the device needs"
            f" {self.device_us / 1e3:.2f} ms; intervals reach from the device's time to the host's time as"
            f" recorded, {self.recorded_us / 1e3:.2f} ms"
        )


def host_limits(step_us: float, device_us: float) -> bool:
    """Whether a step takes much longer than its device needs."""
    return device_us < _HOST_LIMITS * step_us


def without_host(graph: TaskGraph) -> TaskGraph:
    """The graph with threads that cost nothing, except for loading batches, which is no overhead."""
    free = ~graph.on_device() & ~np.isin(graph.tasks.kind, (TaskKind.MARKER, TaskKind.DATA))
    gaps = ~graph.on_device() & (graph.structure.before >= 0)
    return graph.with_times(
        duration_us=np.where(free, 0.0, graph.tasks.duration_us),
        gap_us=np.where(gaps, np.minimum(graph.tasks.gap_us, 0.0), graph.tasks.gap_us),
    )


def misses(error: float) -> str | None:
    """Why to distrust answers where a replay misses the run; None where it does not.

    Args:
        error: of the replay, a share of a step.
    """
    if not abs(error) > MOST_ERROR:
        return None
    return (
        f"the replay misses the recorded steps by {abs(error):.1%}, more than {MOST_ERROR:.0%}:"
        " do not rely on these answers"
    )

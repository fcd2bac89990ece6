"""When every task of a graph starts: replay, scheduling policies, and what a change shifts."""

from __future__ import annotations

from daceml.simulation.engine.events import (
    Ranked,
    SchedulingPolicy,
    SchedulingState,
    by_priority,
    first_ready,
)
from daceml.simulation.engine.incremental import resimulate
from daceml.simulation.engine.replay import simulate
from daceml.simulation.engine.schedule import Schedule

__all__ = [
    "Ranked",
    "Schedule",
    "SchedulingPolicy",
    "SchedulingState",
    "by_priority",
    "first_ready",
    "resimulate",
    "simulate",
]

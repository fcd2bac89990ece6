"""Which step of a run is timed, warms the profiler up, or is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from daceml.errors import ConfigurationError


class Part(Enum):
    """What is done with a step."""

    BEFORE = "timed without the profiler"
    WARMUP = "runs under the profiler, which keeps nothing of it"
    ACTIVE = "recorded"
    AFTER = "timed without the profiler, again"
    OVER = "left alone"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many steps of each part there are; they come in the order of `Part`.

    Attributes:
        steps: that are recorded.
        warmup: in which the profiler sets itself up, and the order of gradients is learned.
        unprofiled: that are timed before, and again after. One more on each side goes untimed: it finds
            caches as the profiler, or the start of the run, has left them.
    Raises:
        ConfigurationError: no steps or no warm-up, or a number below zero.
    """

    steps: int = 5
    warmup: int = 2
    unprofiled: int = 3

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("warmup", 1), ("unprofiled", 0)):
            if getattr(self, name) < least:
                raise ConfigurationError(
                    f"a recording cannot have {name}={getattr(self, name)}",
                    fix=f"pass {name}={least} or more",
                )

    @property
    def aside(self) -> int:
        """Steps without the profiler on each side."""
        return self.unprofiled + 1 if self.unprofiled else 0

    @property
    def least(self) -> int:
        """Steps that a run must have for one of them to be recorded."""
        return self.aside + self.warmup + 1

    @property
    def total(self) -> int:
        """Steps after which nothing more is done."""
        return 2 * self.aside + self.warmup + self.steps

    def part(self, step: int) -> Part:
        """What is done with a step, counted from 0."""
        bounds = (
            (self.aside, Part.BEFORE),
            (self.aside + self.warmup, Part.WARMUP),
            (self.aside + self.warmup + self.steps, Part.ACTIVE),
            (self.total, Part.AFTER),
        )
        return next((part for bound, part in bounds if step < bound), Part.OVER)

"""Times of what is too short for a clock: in batches, of which the median counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles

# Runs something as often as it is told, and says how many seconds all of that took.
Timed = Callable[[int], float]

_BATCH_S = 2e-3  # a clock's step, and the host's part in starting and stopping it, are 1/1000 of it
_BATCHES = 9
_MOST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Duration:
    """One run, over all batches.

    Attributes:
        seconds: the median.
        spread: half the distance of the quartiles, relative to the median.
    """

    seconds: float
    spread: float


def duration(timed: Timed, *, batches: int = _BATCHES, batch_s: float = _BATCH_S) -> Duration:
    """How long one run takes, once the first ones have warmed caches and clocks.

    Args:
        timed: is called with as many runs as fill a batch, a power of two.
        batches: at least 2.
    """
    timed(1)  # compiles and loads, and is no guide to how many runs fill a batch
    runs = 1
    while timed(runs) < batch_s and runs < _MOST:
        runs *= 2
    seconds = sorted(timed(runs) / runs for _ in range(batches))
    low, middle, high = quantiles(seconds, n=4)
    return Duration(seconds=median(seconds), spread=(high - low) / 2 / middle if middle else 0.0)

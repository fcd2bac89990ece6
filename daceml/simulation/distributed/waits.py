"""What each member of a communication spent waiting for the others, and what communicating took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.distributed.clocks.alignment import Alignment
from daceml.simulation.distributed.clocks.timings import Floats, Timings

# By how much a member of a broadcast, or who sends, may end before the last begins and still have waited.
_COINCIDES_US = 5.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Waits:
    """Of m communications among n ranks, by the clock of the first rank, in microseconds.

    Attributes:
        begin_us: [m] when the last of those who wait for each other began.
        pure_us: [m] from there until the first of them ended: communication without waiting.
        wait_us: [m, n] from a member's own begin to that of the last one; NaN for who is no member.
        lag_us: [m, n] from the end of the communication to the member's own end; of who waited for nobody,
            how long it took by itself.
        joins: [m, n] who waited. The root of a broadcast, or who sends, may be done before others begin.
    """

    begin_us: Floats
    pure_us: Floats
    wait_us: Floats
    lag_us: Floats
    joins: NDArray[np.bool_]


def separated(timings: Timings, alignment: Alignment) -> Waits:
    """Waiting and communication, told apart by aligned clocks.

    Members of joint communications wait for all others, whatever the clocks say: one that seems to end before
    another begins has a clock that is wrong, and pure communication is then counted as nothing.
    """
    start_us, end_us = alignment.aligned_us(timings.start_us), alignment.aligned_us(timings.end_us)
    last_us = np.nanmax(start_us, axis=1, keepdims=True)
    joins = timings.members & (timings.joint[:, None] | (end_us >= last_us - _COINCIDES_US))
    # of a pair whose sender was done early, the other one begins when both have begun
    begin_us = last_us[:, 0]
    first_end_us = np.min(np.where(joins, end_us, np.inf), axis=1)
    pure_us = np.maximum(first_end_us - begin_us, 0.0)
    done_us = (begin_us + pure_us)[:, None]
    lag_us = np.where(joins, np.maximum(end_us - done_us, 0.0), end_us - start_us)
    return Waits(
        begin_us=begin_us,
        pure_us=pure_us,
        wait_us=np.where(joins, last_us - start_us, np.where(timings.members, 0.0, np.nan)),
        lag_us=np.where(timings.members, lag_us, np.nan),
        joins=joins,
    )

"""Runs with clocks that are known, whose jitter, waiting and durations are those of a recorded run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.simulation.distributed.clocks.alignment import Alignment
from daceml.simulation.distributed.clocks.timings import Floats, Timings
from daceml.simulation.distributed.waits import separated

_OFF_US = (100.0, 20_000.0)  # by which the end of an outlier is wrong


def drawn(
    recorded: Timings,
    clocks: Alignment,
    *,
    offset_us: Sequence[float],
    drift_ppm: Sequence[float],
    count: int,
    lasting_us: float,
    outliers: float = 0.0,
    seed: int = 0,
) -> Timings:
    """Collectives like those of a recorded run, at random moments, by other clocks.

    What is drawn, with replacement, is measured: how long pure communication took, by how much each member's
    end lay behind the median of its collective, and how long before the last one each member began.

    Args:
        clocks: by which the recorded run is aligned.
        offset_us, drift_ppm: of each rank, what has to be added to its clock to read true time.
        outliers: share of collectives of which one end is wrong by 0.1 to 20 ms, as of a rank that was
            interrupted.
    """
    draw, ranks = np.random.default_rng(seed), len(offset_us)
    waits = separated(recorded, clocks)
    ends = clocks.aligned_us(recorded.end_us)
    jitter_us = (ends - np.nanmedian(ends, axis=1, keepdims=True))[recorded.members]
    wait_us = waits.wait_us[recorded.members]
    begin = np.sort(draw.uniform(0, lasting_us, count))
    early = draw.choice(wait_us, (count, ranks))
    early -= early.min(axis=1, keepdims=True)
    done = begin + draw.choice(waits.pure_us, count)
    # what rounding to whole microseconds took away is put back, and what clocks show is rounded again
    smear = draw.uniform(-0.5, 0.5, (count, ranks))
    end = done[:, None] + draw.choice(jitter_us, (count, ranks)) + smear
    wrong = np.flatnonzero(draw.random(count) < outliers)
    end[wrong, draw.integers(0, ranks, len(wrong))] += draw.uniform(*_OFF_US, len(wrong))
    start = np.minimum(begin[:, None] - early, end)
    return Timings(
        start_us=np.round(_shown(start, offset_us, drift_ppm)),
        end_us=np.round(_shown(end, offset_us, drift_ppm)),
        joint=np.ones(count, np.bool_),
        sender=np.full(count, -1),
        family=np.zeros(count, np.int64),
    )


def _shown(true_us: Floats, offset_us: Sequence[float], drift_ppm: Sequence[float]) -> Floats:
    """What clocks show at a true time, one column a rank."""
    return (true_us - np.array(offset_us)) / (1 + np.array(drift_ppm) * 1e-6)


def shifted(timings: Timings, offset_us: Sequence[float], drift_ppm: Sequence[float]) -> Timings:
    """The same run, seen by clocks that are off by so much."""
    return Timings(
        start_us=_shown(timings.start_us, offset_us, drift_ppm),
        end_us=_shown(timings.end_us, offset_us, drift_ppm),
        joint=timings.joint,
        sender=timings.sender,
        family=timings.family,
    )


def worst_us(
    found: Alignment, offset_us: Sequence[float], drift_ppm: Sequence[float], until_us: float
) -> float:
    """How far an aligned clock is from the first one's time at most, over a run."""
    moments = np.linspace(0, until_us, 9)[:, None] * np.ones(len(offset_us))
    return float(np.abs(found.aligned_us(_shown(moments, offset_us, drift_ppm)) - moments).max())

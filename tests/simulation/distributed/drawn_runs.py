"""Runs whose clocks are known, drawn at random: what alignment has to find again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.simulation.distributed.clocks.alignment import Alignment
from daceml.simulation.distributed.clocks.timings import Timings


def drawn(
    offset_us: Sequence[float],
    *,
    drift_ppm: Sequence[float] | None = None,
    count: int = 200,
    lasting_us: float = 1e6,
    jitter_us: float = 1.0,
    outliers: float = 0.0,
    seed: int = 0,
) -> Timings:
    """Collectives that end together but for a jitter, seen through clocks that are behind by `offset_us`.

    Args:
        outliers: share of collectives of which one member's end is off by 0.1 to 20 ms.
    """
    draw, ranks = np.random.default_rng(seed), len(offset_us)
    begin = np.sort(draw.uniform(0, lasting_us, count))
    early = draw.exponential(300.0, (count, ranks))
    start = begin[:, None] - (early - early.min(axis=1, keepdims=True))
    family = draw.integers(0, 3, count)
    done = begin + np.array([8.0, 80.0, 500.0])[family]
    end = done[:, None] + draw.normal(0, jitter_us, (count, ranks))
    wrong = np.flatnonzero(draw.random(count) < outliers)
    off_us = draw.uniform(100, 20_000, len(wrong)) * draw.choice([-1, 1], len(wrong))
    end[wrong, draw.integers(0, ranks, len(wrong))] += off_us
    start = np.minimum(start, end)
    offset, speed = np.array(offset_us, float), 1 + np.array(drift_ppm or [0.0] * ranks) * 1e-6
    return Timings(
        start_us=(start - offset) / speed,
        end_us=(end - offset) / speed,
        joint=np.ones(count, np.bool_),
        sender=np.full(count, -1),
        family=family,
    )


def worst_us(
    found: Alignment,
    offset_us: Sequence[float],
    drift_ppm: Sequence[float] | None = None,
    until_us: float = 0,
) -> float:
    """How far a found clock is from the true one at most, from time zero until a moment."""
    speed = 1 + np.array(drift_ppm or [0.0] * len(offset_us)) * 1e-6
    moments = np.linspace(0, until_us, 5)[:, None]
    shown = (moments - np.array(offset_us)) / speed
    return float(np.abs(found.aligned_us(shown) - moments).max())

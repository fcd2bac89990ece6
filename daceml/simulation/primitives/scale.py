"""Shrink and scale: other durations, the same graph."""

from __future__ import annotations

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import Floats, Mask, TaskGraph


def scale(graph: TaskGraph, mask: Mask, factor: float, *, floor_us: float = 0.0) -> TaskGraph:
    """Every selected task lasts `factor` times as long.

    Args:
        floor_us: what of each duration does not scale: a kernel lasts some microseconds whatever it does.
    Raises:
        WhatIfError: the factor or the floor is negative or no finite number.
    """
    _check_factor("durations", factor)
    _check_factor("floors", floor_us)
    duration_us = graph.tasks.duration_us
    fixed_us = np.minimum(duration_us, floor_us)
    return graph.with_times(
        duration_us=np.where(mask, fixed_us + (duration_us - fixed_us) * factor, duration_us)
    )


def scale_gaps(graph: TaskGraph, mask: Mask, factor: float) -> TaskGraph:
    """What passes on the lane before every selected task lasts `factor` times as long.

    A gap below zero, of kernels that overlap, stays.
    """
    _check_factor("gaps", factor)
    gap_us = graph.tasks.gap_us
    return graph.with_times(gap_us=np.where(mask & (gap_us > 0), gap_us * factor, gap_us))


def set_duration(graph: TaskGraph, mask: Mask, duration_us: float | Floats) -> TaskGraph:
    """Every selected task lasts as long as given, microseconds: one figure, or one for each selected task."""
    wanted = np.asarray(duration_us, np.float64)
    count = int(mask.sum())
    if wanted.shape not in ((), (count,)):
        raise WhatIfError(
            f"{wanted.size} durations for {count} selected tasks", fix="give one figure, or one for each task"
        )
    if not np.isfinite(wanted).all() or (wanted < 0).any():
        raise WhatIfError("a duration is negative or no finite number", fix="give microseconds, 0 or more")
    changed = graph.tasks.duration_us.copy()
    changed[mask] = wanted
    return graph.with_times(duration_us=changed)


def _check_factor(what: str, factor: float) -> None:
    if not np.isfinite(factor) or factor < 0:
        raise WhatIfError(f"{what} cannot be scaled by {factor}", fix="give a finite factor, 0 or more")

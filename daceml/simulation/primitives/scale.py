"""Shrink and scale: other durations, the same graph."""

from __future__ import annotations

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import Floats, Mask, TaskGraph


def scale(graph: TaskGraph, mask: Mask, factor: float) -> TaskGraph:
    """Every selected task lasts `factor` times as long.

    Raises:
        WhatIfError: the factor is negative or no finite number.
    """
    if not np.isfinite(factor) or factor < 0:
        raise WhatIfError(f"durations cannot be scaled by {factor}", fix="give a finite factor, 0 or more")
    duration_us = graph.tasks.duration_us
    return graph.with_times(duration_us=np.where(mask, duration_us * factor, duration_us))


def scale_gaps(graph: TaskGraph, mask: Mask, factor: float) -> TaskGraph:
    """What passes on the lane before every selected task lasts `factor` times as long."""
    if not np.isfinite(factor) or factor < 0:
        raise WhatIfError(f"gaps cannot be scaled by {factor}", fix="give a finite factor, 0 or more")
    gap_us = graph.tasks.gap_us
    return graph.with_times(gap_us=np.where(mask, gap_us * factor, gap_us))


def set_duration(graph: TaskGraph, mask: Mask, duration_us: float | Floats) -> TaskGraph:
    """Every selected task lasts as long as given, microseconds: one figure, or one for each selected task."""
    wanted = np.broadcast_to(np.asarray(duration_us, np.float64), (int(mask.sum()),))
    if not np.isfinite(wanted).all() or (wanted < 0).any():
        raise WhatIfError("a duration is negative or no finite number", fix="give microseconds, 0 or more")
    changed = graph.tasks.duration_us.copy()
    changed[mask] = wanted
    return graph.with_times(duration_us=changed)

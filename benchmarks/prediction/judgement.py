"""Predictions beside answers: errors, and whether intervals hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daceml.profiling.estimation.estimate import Estimate


def judged(estimates: Sequence[Estimate], seconds: NDArray[np.float64]) -> dict[str, Any]:
    """Mean absolute relative error, share of answers within the interval, and its mean relative width."""
    us = 1e6 * seconds
    likely = np.array([one.duration_us for one in estimates])
    low = np.array([one.low_us for one in estimates])
    high = np.array([one.high_us for one in estimates])
    error = np.abs(likely / us - 1)
    return {
        "rows": len(us),
        "error": float(error.mean()),
        "median_error": float(np.median(error)),
        "covered": float(((low <= us) & (us <= high)).mean()),
        "width": float(((high - low) / likely).mean()),
        "outside": sum(bool(one.outside) for one in estimates),
    }

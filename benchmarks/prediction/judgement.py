"""Predictions beside answers: errors, and whether intervals hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daceml.operations.estimate import Estimate


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


@dataclass(frozen=True, kw_only=True)
class OverDevices:
    """Means over devices of what was judged of one operator; None where nothing was.

    Attributes:
        worst: the device with the largest error, in words.
    """

    error: float | None
    covered: float | None
    beyond: float | None
    width: float | None
    worst: str


def over_devices(rows: Sequence[dict[str, Any]], operator: str) -> OverDevices:
    """Of rows with an operator, a device and what `judged` says of it."""
    mine = [row for row in rows if row["operator"] == operator]
    worst = max(mine, key=lambda row: row["error"], default=None)

    def mean(name: str) -> float | None:
        return float(np.mean([row[name] for row in mine])) if mine else None

    covered = mean("covered")
    return OverDevices(
        error=mean("error"),
        covered=covered,
        beyond=None if covered is None else 1 - covered,
        width=mean("width"),
        worst="" if worst is None else f"worst {worst['error']:.3f} on {worst['device']}",
    )

"""How much longer the profiler made a step, where the recorder measured it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from daceml.simulation.building.draft import Draft

_WORTH_A_NOTE = 1.05


def add_inflation(draft: Draft) -> None:
    """Note it, and say it if it matters: recorded times are those of a run that is being recorded."""
    ratio = _measured(draft.trace.header.get("daceml"))
    if ratio is None:
        return
    draft.inflation = ratio
    if ratio > _WORTH_A_NOTE:
        draft.notes.append(
            f"recording made a step {ratio:.2f} times as long: predictions are of a run without the profiler"
        )


def _measured(told: object) -> float | None:
    times = cast("Mapping[str, Any]", told).get("times") if isinstance(told, Mapping) else None
    ratio = cast("Mapping[str, Any]", times).get("inflation") if isinstance(times, Mapping) else None
    if not isinstance(ratio, int | float) or not math.isfinite(ratio):
        return None
    return float(ratio) if ratio > 0 else None

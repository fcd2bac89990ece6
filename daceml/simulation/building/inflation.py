"""How much longer the profiler made a step, where the recorder measured it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from daceml.simulation.building.draft import Draft

_WORTH_A_NOTE = 1.05


def note_inflation(draft: Draft) -> None:
    """Say it, if it matters: times of a recorded run are those of a run that is being recorded."""
    ratio = _measured(draft.trace.header.get("daceml"))
    if ratio is not None and ratio > _WORTH_A_NOTE:
        draft.notes.append(
            f"recording made a step {ratio:.2f} times as long: ratios of steps carry over to a run"
            " without the profiler, milliseconds do not"
        )


def _measured(told: object) -> float | None:
    times = cast("Mapping[str, Any]", told).get("times") if isinstance(told, Mapping) else None
    ratio = cast("Mapping[str, Any]", times).get("inflation") if isinstance(times, Mapping) else None
    return float(ratio) if isinstance(ratio, int | float) else None

"""Whether times are what Chrome's format says, microseconds, and how much of a run a file lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from daceml.errors import TraceContentError
from daceml.profiling.kineto.timeline import TWICE
from daceml.profiling.trace import EventKind, Events, Floats

_COARSE_US = 2.0  # between neighbouring times: kernels take as long
_WORTH_A_WARNING = 0.01  # of the events

# The quickest launch of a run takes 2 to 10 us, its shortest kernel 1 us: in nanoseconds, thousands.
_LAUNCH = re.compile(r"^(cuda|hip|cu)(Module)?Launch")
_LONG_US = 500.0
_FEW = 5
_PERCENTILE = 1.0
# Operators that only make or describe a tensor take about 1 us.
_QUICK = re.compile(r"^aten::(empty|empty_strided|view|as_strided|t|transpose|detach|select|slice|expand)$")


def check_resolution(starts: Sequence[int], source: str) -> None:
    """Refuse times that were rounded to more than kernels last.

    Args:
        starts: whole microseconds, on the clock of the file.
    Raises:
        TraceContentError: all of them are numbers that a float64 holds, so large that it holds few.
    """
    largest = max(map(abs, starts), default=0)
    step = float(np.spacing(float(largest)))
    if step < _COARSE_US:
        return
    times = set(starts)
    if len(times) < 2 or any(start % int(step) for start in times):
        return
    raise TraceContentError(
        f"the times of the trace are multiples of {step:.0f} us",
        where=source,
        why=f"times near {largest:.3g} were written as 64-bit floats, which hold no finer steps there",
        fix="write times as integers, or from the beginning of the run on, and export the trace again",
    )


def check_unit(events: Events, names: Sequence[str], source: str) -> None:
    """Refuse durations that can only be nanoseconds.

    Raises:
        TraceContentError: the shortest launches and kernels, or operators that do nothing, last too long.
    """
    launches = _durations(events, names, EventKind.CALL, _LAUNCH)
    kernels = events.duration_us[events.of(EventKind.KERNEL)]
    quick = _durations(events, names, EventKind.OPERATOR, _QUICK)
    if len(launches) >= _FEW and len(kernels) >= _FEW:
        seen = {"launches": _shortest(launches), "kernels": _shortest(kernels)}
    elif len(quick) >= _FEW:
        seen = {"operators that compute nothing": _shortest(quick)}
    else:
        return
    if min(seen.values()) < _LONG_US:
        return
    told = " and ".join(f"the shortest {what} last {time_us:,.0f}" for what, time_us in seen.items())
    raise TraceContentError(
        "the times of the trace are not microseconds",
        where=source,
        why=f"{told}: they look like nanoseconds, and every figure would be 1000 times too large",
        fix="divide ts and dur by 1000: Chrome's format has microseconds",
    )


def _durations(events: Events, names: Sequence[str], kind: EventKind, pattern: re.Pattern[str]) -> Floats:
    chosen = np.array([pattern.match(name) is not None for name in names], np.bool_)
    return events.duration_us[(events.kind == kind) & chosen[events.name]]


def _shortest(durations_us: Floats) -> float:
    return float(np.percentile(durations_us, _PERCENTILE))


def warnings_of(left_out: Mapping[str, int], kept: int) -> tuple[str, ...]:
    """What to say before all figures of a file whose events were left out."""
    missing = {reason: count for reason, count in left_out.items() if count and reason != TWICE}
    lost = sum(missing.values())
    if lost <= _WORTH_A_WARNING * (lost + kept):
        return ()
    reasons = ", ".join(f"{count} {reason}" for reason, count in missing.items())
    return (
        f"{lost} of {lost + kept} events ({lost / (lost + kept):.0%}) were left out, and figures lack"
        f" their work: {reasons}",
    )

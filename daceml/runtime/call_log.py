"""Which programs ran when, and how long each of their steps took, for whoever records a run."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from daceml.runtime import launcher

_HEAD = 5  # numbers that describe a call in call_log.cpp


@dataclass(frozen=True, kw_only=True)
class LoggedCall:
    """One call of a bound program.

    Attributes:
        program: by which the launcher knows it.
        thread: the operating system's number of the thread that ran it.
        start_ns, end_ns: of the program's own code, since 1970; checks before it and after it are left out.
        step_us: how long each step took, in order. Nothing runs between two steps.
    """

    program: int
    thread: int
    start_ns: int
    end_ns: int
    step_us: tuple[float, ...]


def start_call_log() -> None:
    """Record every call from now on; what was recorded before is forgotten."""
    launcher.native().daceml_call_log_start()


def stop_call_log() -> tuple[LoggedCall, ...]:
    """Stop, and hand out the calls in the order in which they ended."""
    native = launcher.native()
    steps = ctypes.c_int64(0)
    count = int(native.daceml_call_log_stop(ctypes.byref(steps)))
    heads = (ctypes.c_int64 * max(_HEAD * count, 1))()
    times = (ctypes.c_double * max(steps.value, 1))()
    native.daceml_call_log_take(count, heads, times)
    calls: list[LoggedCall] = []
    taken = 0
    for row in range(count):
        program, thread, start_ns, end_ns, own = heads[_HEAD * row : _HEAD * (row + 1)]
        step_us = tuple(times[taken : taken + own])
        taken += own
        calls.append(
            LoggedCall(program=program, thread=thread, start_ns=start_ns, end_ns=end_ns, step_us=step_us)
        )
    return tuple(calls)

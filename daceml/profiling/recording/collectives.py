"""Collectives that torch's profiler does not see, as events of a trace; pure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daceml.runtime.collective_log import LoggedCollective


def collective_events(logged: Iterable[LoggedCollective], base_ns: int) -> list[dict[str, Any]]:
    """One event for each, with the arguments that torch gives those of its own process groups.

    Args:
        base_ns: of the trace: its time zero since 1970.
    """
    return [
        {
            "ph": "X", "cat": "user_annotation", "name": one.name,
            "pid": os.getpid(), "tid": one.thread,
            "ts": round((one.start_ns - base_ns) / 1e3, 3),
            "dur": round((one.end_ns - one.start_ns) / 1e3, 3),
            "args": {
                "Collective name": one.name.partition(":")[2].replace("_", ""),
                "dtype": one.dtype,
                "In msg nelems": one.elements,
                "Out msg nelems": one.elements,
                "Group size": one.size,
                "Process Group Name": one.group,
                "Seq": one.sequence,
                "Input Dims": [[one.elements]],
            },
        }
        for one in logged
    ]  # fmt: skip

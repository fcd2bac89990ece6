"""How much of its communication a recorded run hides behind what the same rank computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Interval = tuple[float, float]


def overlap(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """All-reduces of a trace beside the kernels of compiled backward passes; pure.

    Returns:
        microseconds of all-reduces, and of these in which a kernel ran; how many all-reduces there are.
    """
    complete = [event for event in events if event.get("ph") == "X"]
    sent = [_interval(event) for event in complete if event["name"].endswith(":all_reduce")]
    computed = [_interval(e) for e in complete if e.get("args", {}).get("kind") in ("kernel", "aten")]
    return {
        "all_reduces": len(sent),
        "all_reduce_us": sum(end - start for start, end in sent),
        "hidden_us": sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in sent for b in computed),
        "overlapping": sum(any(a[0] < b[1] and b[0] < a[1] for b in computed) for a in sent),
    }


def _interval(event: Mapping[str, Any]) -> Interval:
    return event["ts"], event["ts"] + event["dur"]

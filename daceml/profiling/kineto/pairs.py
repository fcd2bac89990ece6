"""Events that begin in one line and end in another ("B" and "E"), as some writers of Chrome traces do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daceml.profiling.kineto.numerals import is_number

Raw = Mapping[str, Any]


def paired(events: Sequence[Raw]) -> tuple[list[Raw], int]:
    """Complete events of the beginnings and ends; and how many found no partner.

    On each thread an end belongs to the last beginning that is still open.
    """
    timed = [event for event in events if is_number(event.get("ts"))]
    ordered = sorted(timed, key=lambda event: event["ts"])  # stable: equal times stay in the file's order
    open_events: dict[tuple[str, str], list[Raw]] = {}
    complete: list[Raw] = []
    alone = len(events) - len(timed)
    for event in ordered:
        waiting = open_events.setdefault((repr(event.get("pid")), repr(event.get("tid"))), [])
        if event["ph"] == "B":
            waiting.append(event)
        elif waiting:
            begun = waiting.pop()
            complete.append(
                {
                    **begun,
                    "ph": "X",
                    "dur": event["ts"] - begun["ts"],
                    "args": {**_dict(begun), **_dict(event)},
                }
            )
        else:
            alone += 1
    return complete, alone + sum(map(len, open_events.values()))


def _dict(event: Raw) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}  # pyright: ignore[reportUnknownVariableType]

"""Which thread or stream an event belongs to, from its numbers or from what stands in their place."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from daceml.errors import printable
from daceml.profiling.trace import Ints, TraceLane

_STREAM = re.compile(r"(?:stream\s*)?(-?\d+)", re.IGNORECASE)
_UNNAMED = "?"
# Of events that concern no stream, or every stream; also as an unsigned number
NO_STREAM = -1
_NO_STREAM = (NO_STREAM, 2**32 - 1)
_LARGEST_DEVICE = 1 << 20  # whatever is beyond is no number of a device


class Lanes:
    """The lanes of a file, numbered as they are met."""

    def __init__(self) -> None:
        self._numbers: dict[TraceLane, int] = {}
        self._cache: dict[Any, int] = {}

    def thread(self, process: Any, thread: Any) -> int:
        """The lane of a CPU thread."""
        key = (process, thread)
        try:
            return self._cache[key]
        except KeyError:
            lane = TraceLane(kind="thread", process=_text(process), thread=_text(thread))
            return self._cache.setdefault(key, self._number(lane))
        except TypeError:  # a list where a number should be
            return self._number(TraceLane(kind="thread", process=_text(process), thread=_text(thread)))

    def stream(self, process: Any, thread: Any, details: Mapping[str, Any]) -> int:
        """The lane of work of a device: by "device" and "stream", else by process and thread."""
        key = (None, details.get("device"), details.get("stream"), process, thread)
        try:
            return self._cache[key]
        except KeyError:
            return self._cache.setdefault(key, self._number(_stream_lane(*key[1:])))
        except TypeError:
            return self._number(_stream_lane(*key[1:]))

    def ordered(self, used: Ints) -> tuple[tuple[TraceLane, ...], Ints]:
        """The lanes that are used, threads first, each of its own name; where each number stands there."""
        known = list(self._numbers)
        order = sorted(used.tolist(), key=lambda number: _order(known[number]))
        place = np.full(len(known), -1, np.int64)
        place[order] = np.arange(len(order))
        return _told_apart([known[number] for number in order]), place

    def _number(self, lane: TraceLane) -> int:
        return self._numbers.setdefault(lane, len(self._numbers))


def is_vague(lane: TraceLane) -> bool:
    """Whether the events of a lane did not say where they ran."""
    return _UNNAMED in (lane.process, lane.thread)


def _stream_lane(device: Any, stream: Any, process: Any, thread: Any) -> TraceLane:
    chosen = next((d for d in (_integer(device), _integer(process)) if d is not None), None)
    if chosen is not None and not 0 <= chosen < _LARGEST_DEVICE:
        chosen = None
    number = next((s for s in (_integer(stream), _integer(thread)) if s is not None), None)
    text = _text(thread) if number is None else str(NO_STREAM if number in _NO_STREAM else number)
    return TraceLane(
        kind="stream", process=_UNNAMED if chosen is None else str(chosen), thread=text, device=chosen
    )


def _integer(value: Any) -> int | None:
    """7 of 7, "7" and "stream 7"."""
    if type(value) is int and abs(value) < 2**63:
        return value
    found = _STREAM.fullmatch(value.strip()) if type(value) is str and len(value) < 30 else None
    return int(found[1]) if found else None


def _text(value: Any) -> str:
    number = _integer(value)
    if number is not None:
        return str(number)
    return printable(value.strip()) or _UNNAMED if type(value) is str else _UNNAMED


def _order(lane: TraceLane) -> tuple[Any, ...]:
    numbers = [(_integer(text) is None, _integer(text) or 0, text) for text in (lane.process, lane.thread)]
    return (lane.kind == "stream", *numbers)


def _told_apart(lanes: list[TraceLane]) -> tuple[TraceLane, ...]:
    """Threads of two processes may have one number: their text then names the process, too."""
    count = Counter(lane.name for lane in lanes)
    return tuple(
        dataclasses.replace(lane, thread=f"{lane.thread} of {lane.process}")
        if lane.kind == "thread" and count[lane.name] > 1
        else lane
        for lane in lanes
    )

"""Arrows between events: which ones they join, and what follows for events that carry no numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daceml.profiling.kineto.lanes import Lanes
from daceml.profiling.kineto.numerals import is_number
from daceml.profiling.kineto.timeline import Origin
from daceml.profiling.trace import UNKNOWN, EventKind, Events, Floats, Ints

Index = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends:
    """One end of each of n arrows.

    Attributes:
        label: [n] the arrow that it belongs to.
        thread: [n] lane of the thread that it names.
        stream: [n] lane of the stream that it names instead, if it does.
        time_us: [n] from the first event.
    """

    label: tuple[Any, ...]
    thread: Ints
    stream: Ints
    time_us: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrows:
    """Where arrows start, and where they end."""

    starts: Ends
    finishes: Ends


def arrows(flows: Sequence[Mapping[str, Any]], lanes: Lanes, origin: Origin) -> Arrows:
    """Raw events of phase "s" and "f"; those without a time or label join nothing."""
    usable = [flow for flow in flows if is_number(flow.get("ts")) and type(flow.get("id")) in (int, str)]
    starts = [flow for flow in usable if flow.get("ph") == "s"]
    finishes = [flow for flow in usable if flow.get("ph") == "f"]
    return Arrows(starts=_ends(starts, lanes, origin), finishes=_ends(finishes, lanes, origin))


def _ends(flows: Sequence[Mapping[str, Any]], lanes: Lanes, origin: Origin) -> Ends:
    places = [(flow.get("pid"), flow.get("tid")) for flow in flows]
    return Ends(
        label=tuple(flow["id"] for flow in flows),
        thread=np.array([lanes.thread(*place) for place in places], np.int64),
        stream=np.array([lanes.stream(*place, {}) for place in places], np.int64),
        time_us=origin.times([flow["ts"] for flow in flows]),
    )


def gradient_pairs(events: Events, joined: Arrows) -> Ints:
    """[k, 2] operators and their backward, as the arrows join them."""
    operators = events.of(EventKind.OPERATOR)
    numbered = operators[events.sequence[operators] != UNKNOWN]
    sides: list[Mapping[Any, int]] = []
    for ends in (joined.starts, joined.finishes):
        exact = _at(events, numbered, ends.thread, ends.time_us, enclosing=False)
        other = _at(events, operators, ends.thread, ends.time_us, enclosing=True)
        sides.append(_by_label(ends.label, np.where(exact >= 0, exact, other)))
    forward, backward = sides
    pairs = [(forward[label], backward[label]) for label in forward if label in backward]
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def linked(events: Events, joined: Arrows) -> Ints:
    """[n] correlations, with numbers for calls and device work that have none but an arrow between them."""
    correlation = events.correlation.copy()
    calls = events.of(EventKind.CALL)
    work = events.of(EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET)
    if not ((correlation[calls] == UNKNOWN).any() or (correlation[work] == UNKNOWN).any()):
        return correlation
    starts, finishes = joined.starts, joined.finishes
    call_of = _by_label(starts.label, _at(events, calls, starts.thread, starts.time_us, enclosing=True))
    found = _at(events, work, finishes.stream, finishes.time_us, enclosing=True)
    fresh = int(correlation.max(initial=0)) + 1
    for label, target in zip(finishes.label, found.tolist(), strict=True):
        call = call_of.get(label, UNKNOWN)
        if target == UNKNOWN or call == UNKNOWN:
            continue
        known = next((c for c in (correlation[call], correlation[target]) if c != UNKNOWN), fresh)
        fresh += known == fresh
        for event in (call, target):
            if correlation[event] == UNKNOWN:
                correlation[event] = known
    return correlation


def _at(events: Events, among: Index, lane: Ints, time_us: Floats, *, enclosing: bool) -> Index:
    """[n] the innermost of some events that starts at each place (`enclosing`: that holds it), else -1."""
    found = np.full(len(lane), -1, np.intp)
    for number in np.unique(lane):
        here = np.flatnonzero(lane == number)
        candidates = among[events.lane[among] == number]
        if not len(candidates):
            continue
        start_us = events.start_us[candidates]  # by start, as all events are
        last = np.searchsorted(start_us, time_us[here], side="right") - 1
        chosen = candidates[np.maximum(last, 0)]
        holds = (last >= 0) & (
            (events.end_us[chosen] >= time_us[here])
            if enclosing
            else (events.start_us[chosen] == time_us[here])
        )
        found[here[holds]] = chosen[holds]
    return found


def _by_label(labels: tuple[Any, ...], found: Index) -> Mapping[Any, int]:
    return {label: event for label, event in zip(labels, found.tolist(), strict=True) if event >= 0}

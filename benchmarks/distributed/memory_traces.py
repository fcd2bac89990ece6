"""Memory events of recorded runs on GPUs, replayed through the model of the caching allocator.

Allocated and reserved bytes are compared at every event. In these runs the cache suffices, so that what is
reserved never changes: whether the model's rules are those of the allocator is seen at addresses. Every block
is placed by its size alone into what must have been free, and its address compared with the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daceml.profiling.kineto import read_trace
from daceml.simulation.memory import AllocatorEvents, CachingAllocator, replay_trace, trace_events
from daceml.simulation.memory.caching_allocator import SMALL_BYTES

FOLDERS = ("traces/models_h100", "traces/models_mi300")
_ALIGNED = 2 << 20  # that segments are multiples of


def replays(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each trace that has memory events of a device."""
    for place in FOLDERS:
        for file in sorted((folder / place).glob("*.json.gz")):
            trace = read_trace(file)
            seen = replay_trace(trace)
            yield {
                "what": "replay of events",
                "trace": f"{file.parent.name}/{file.name.partition('__')[0]}",
                "events": len(seen.recorded),
                "allocated_error": seen.allocated_error,
                "reserved_error": seen.reserved_error,
                "peak_bytes": seen.recorded.peak_bytes,
                "reserved_bytes": seen.recorded.peak_reserved_bytes,
                "reserved_without_cache_bytes": seen.without_cache.peak_reserved_bytes,
                "unknown_frees": seen.unknown_frees,
                **placements(trace_events(trace)),
            }


def placements(events: AllocatorEvents) -> dict[str, Any]:
    """How many blocks the model puts where the run had them.

    What was free before the trace follows from where the run puts blocks, but for where it ended: at the last
    block, or at the end of its segment. All four cases of both pools are tried, and the best one counts.
    """
    cases = [(small, large) for small in (False, True) for large in (False, True)]
    same = {case: _same_places(events, small_to_end=case[0], large_to_end=case[1]) for case in cases}
    best = max(cases, key=lambda case: same[case])
    return {
        "blocks": int((events.size_bytes >= 0).sum()),
        "same_address": same[best],
        "free_to_the_end": {"small": best[0], "large": best[1]},
    }


def _same_places(events: AllocatorEvents, *, small_to_end: bool, large_to_end: bool) -> int:
    allocator = CachingAllocator()
    for small, to_end in ((True, small_to_end), (False, large_to_end)):
        for begin, end in _ranges(events, small=small):
            until = -(-end // _ALIGNED) * _ALIGNED if to_end else end
            allocator.add_segment(until - begin, small=small, address=begin)
    places: dict[int, int] = {}
    same = 0
    for block, size in zip(events.block.tolist(), events.size_bytes.tolist(), strict=True):
        if size >= 0:
            places[block] = allocator.take(size)
            same += places[block] == block
        elif block in places:
            allocator.give_back(places.pop(block))
    return same


def _ranges(events: AllocatorEvents, *, small: bool) -> list[tuple[int, int]]:
    """Where blocks of a pool lay at any time, joined where they touch."""
    found: list[tuple[int, int]] = []
    taken = (events.size_bytes >= 0) & ((events.size_bytes <= SMALL_BYTES) == small)
    begins = events.block[taken].tolist()
    for begin, size in sorted(zip(begins, events.size_bytes[taken].tolist(), strict=True)):
        end = begin + size
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found

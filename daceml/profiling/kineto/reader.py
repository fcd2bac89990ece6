"""A file of a profiler -> a `Trace`."""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from daceml.errors import TraceFileError, printable
from daceml.garbage_collection import without_collection
from daceml.profiling.kineto.columns import EventSorter
from daceml.profiling.kineto.document import Document
from daceml.profiling.kineto.flows import arrows, gradient_pairs, linked
from daceml.profiling.kineto.header import header_of
from daceml.profiling.kineto.lanes import is_vague
from daceml.profiling.kineto.memory import memory_of
from daceml.profiling.kineto.plausibility import check_resolution, check_unit, warnings_of
from daceml.profiling.kineto.source import opened
from daceml.profiling.kineto.timeline import events_by_start
from daceml.profiling.trace import UNKNOWN, EventKind, Events, Trace

# As many reasons of one kind stand in the notes, each with its number of events.
_MOST_REASONS = 8


def read_trace(path: str | Path) -> Trace:
    """Read a trace of PyTorch's profiler, or another file in Chrome's format.

    Args:
        path: .json or .json.gz, of any version from PyTorch 1.8 on, of NVIDIA's, AMD's or no device.
    Returns:
        what was recorded; `notes` says what was wrong with the file and could be mended.
    Raises:
        TraceFileError: there is no such file, it is damaged or no trace, or none of its events can be used.
        TraceContentError: its times are no microseconds, or were rounded.
    """
    with opened(Path(path)) as file, without_collection():
        return _trace(Document(file, str(path)))


def trace_of(data: bytes, source: str) -> Trace:
    """Read a trace from the bytes of a file; see `read_trace`."""
    with without_collection():
        return _trace(Document(io.BytesIO(data), source))


def _trace(document: Document) -> Trace:
    sorter = EventSorter(document.source)
    for events in document.events():
        sorter.take(events)
    columns = sorter.finished()
    check_resolution(columns.start, document.source)
    found = events_by_start(columns)
    if found is None:
        raise _nothing(document.source, columns.left_out)
    events, origin = found
    check_unit(events, tuple(columns.names), document.source)
    launches = arrows(columns.launches, columns.lanes, origin)
    gradients = arrows(columns.gradients, columns.lanes, origin)
    events = dataclasses.replace(events, correlation=linked(events, launches))
    pairs = gradient_pairs(events, gradients)
    events, repeated = _without_repeated_ids(events)
    lanes, place = columns.lanes.ordered(np.unique(events.lane))
    events = dataclasses.replace(events, lane=place[events.lane])
    vague = np.array([is_vague(lane) for lane in lanes], np.bool_)
    columns.mended["that do not say on which thread, device or stream"] += int(vague[events.lane].sum())
    memory = memory_of(columns, origin)
    header = header_of(document.header)
    return Trace(
        source=document.source,
        events=events,
        lanes=lanes,
        names=tuple(map(printable, columns.names)),  # a terminal would obey what a file says
        memory=memory,
        first_us=header.base_us + origin.time_us,
        devices=header.devices,
        rank=header.rank,
        world_size=header.world_size,
        gradient_pairs=pairs,
        header=header.rest,
        notes=(
            *document.notes,
            *header.notes,
            *repeated,
            *_told(columns.left_out, "left out: "),
            *_told(columns.mended, ""),
        ),
        warnings=warnings_of(columns.left_out, len(events)),
        left_out=dict(columns.left_out),
    )


def _without_repeated_ids(events: Events) -> tuple[Events, Sequence[str]]:
    """Where no operator led to a call, profilers of 2022 to 2024 write its correlation as external id."""
    repeated = (
        (events.external_id == events.correlation)
        & (events.correlation != UNKNOWN)
        & ~np.isin(events.kind, (EventKind.OPERATOR, EventKind.ANNOTATION))
    )
    if not repeated.any():
        return events, ()
    cleared = dataclasses.replace(events, external_id=np.where(repeated, UNKNOWN, events.external_id))
    if (cleared.external_id[cleared.correlation != UNKNOWN] != UNKNOWN).any():
        return cleared, ()
    return cleared, ("external ids of calls and device work repeat their correlation: they name no operator",)


def _told(counts: Counter[str], verb: str) -> list[str]:
    most = [(reason, count) for reason, count in counts.most_common(_MOST_REASONS) if count]
    rest = sum(counts.values()) - sum(count for _, count in most)
    told = [f"{verb}events {reason}: {count}" for reason, count in most]
    return [*told, f"{verb}events like these, for other reasons: {rest}"] if rest else told


def _nothing(source: str, left_out: Counter[str]) -> TraceFileError:
    return TraceFileError(
        "a trace without any event that can be used",
        where=source,
        why="\n".join(_told(left_out, "left out: ")) or "it has no event with a duration",
        fix="record again: torch.profiler.profile(activities=[CPU, CUDA])",
    )

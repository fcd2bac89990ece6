"""Raw events -> columns in the file's order."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from daceml.profiling.kineto.categories import (
    ANNOTATIONS_AMONG_OPERATORS,
    EXTERNAL_ID,
    FORGOTTEN_DETAILS,
    GRADIENT_FLOWS,
    KINDS,
    LAUNCH_FLOWS,
    ON_STREAMS,
    SILENT,
)
from daceml.profiling.kineto.lanes import Lanes
from daceml.profiling.kineto.numerals import LARGEST, ExactTime, identifier, parts_of
from daceml.profiling.kineto.pairs import paired
from daceml.profiling.kineto.source import LIMIT_EVENTS, too_many
from daceml.profiling.trace import UNKNOWN, EventKind

# No recording of training steps lasts longer; what does is a clock that was never set.
LONGEST_US = 24 * 3600e6
_NUMBERS = frozenset({int, float, ExactTime})
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_MEMORY = "[memory]"
_UNNAMED = "(no name)"
# Phases of Chrome's format that tell of no work: instants, counters, names of lanes, asynchronous ranges,
# samples, objects, memory dumps, marks, clocks, contexts
_NO_WORK = frozenset("iInCMbePNODVvRc()STFp")
_NEW, _OLD = EXTERNAL_ID

Raw = Mapping[str, Any]


@dataclass(kw_only=True)
class Columns:
    """Columns of equal length, one entry an event, and what is looked at later.

    Attributes:
        start, start_rest: as the file gives it: whole microseconds, and what is beyond them.
        duration: microseconds.
        name: index in `names`; so is `lane` in `lanes`.
        memory: what allocators did.
        launches, gradients: arrows between events.
        left_out: how many events were left out for each reason.
        mended: how many were taken in spite of something; "events" goes before each reason in both.
    """

    kind: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("q"))
    lane: array[int] = field(default_factory=lambda: array("q"))
    start: array[int] = field(default_factory=lambda: array("q"))
    start_rest: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    external_id: array[int] = field(default_factory=lambda: array("q"))
    sequence: array[int] = field(default_factory=lambda: array("q"))
    details: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    names: dict[str, int] = field(default_factory=dict[str, int])
    lanes: Lanes = field(default_factory=Lanes)
    memory: list[Raw] = field(default_factory=list[Raw])
    launches: list[Raw] = field(default_factory=list[Raw])
    gradients: list[Raw] = field(default_factory=list[Raw])
    left_out: Counter[str] = field(default_factory=Counter[str])
    mended: Counter[str] = field(default_factory=Counter[str])

    def __len__(self) -> int:
        return len(self.kind)


def kind_of(category: Any) -> EventKind | None:
    """What events of a category tell; None of those that tell nothing of the run, or that nobody knows."""
    return KINDS.get(category.lower()) if isinstance(category, str) else None


def is_known(category: Any) -> bool:
    """Whether a profiler of PyTorch writes this category."""
    return isinstance(category, str) and (category.lower() in KINDS or category.lower() in SILENT)


class EventSorter:
    """Puts raw events, as they are read, into columns; what no column can hold is left out and counted."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._columns = Columns()
        # Of categories that no profiler of PyTorch writes, until it is known whether one wrote this file
        self._foreign = Columns(names=self._columns.names, lanes=self._columns.lanes)
        self._unknown: Counter[str] = Counter()
        self._ours = False
        self._halves: list[Raw] = []
        self._kinds: dict[str, tuple[EventKind | None, bool]] = {}
        self._count = 0

    def take(self, events: list[Any]) -> None:
        """Sort some events.

        Raises:
            TraceFileError: there are more of them than fit into memory.
        """
        self._count += len(events)
        if self._count > LIMIT_EVENTS:
            raise too_many(self._source, f"at least {self._count:,}")
        columns, complete = self._columns, self._complete
        for event in events:
            if type(event) is not dict:
                columns.left_out["that are no objects"] += 1
                continue
            phase = event.get("ph")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            if phase == "X":
                complete(event)  # pyright: ignore[reportUnknownArgumentType]
            elif phase in ("B", "E"):
                self._halves.append(event)  # pyright: ignore[reportUnknownArgumentType]
            elif phase in ("s", "f", "t"):
                _flow(event, columns)  # pyright: ignore[reportUnknownArgumentType]
            elif phase in ("i", "I", "n") and event.get("name") == _MEMORY:  # pyright: ignore[reportUnknownMemberType]
                columns.memory.append(event)  # pyright: ignore[reportUnknownArgumentType]
            elif type(phase) is not str or phase not in _NO_WORK:
                columns.left_out[f"of the unknown phase {_quoted(phase)}"] += 1

    def finished(self) -> Columns:
        """The columns of all events."""
        pairs, alone = paired(self._halves)
        self._halves.clear()
        if alone:
            self._columns.left_out["that begin or end without their other half"] += alone
        for event in pairs:
            self._complete(event)
        columns, foreign = self._columns, self._foreign
        if self._ours:
            for category, count in self._unknown.items():
                columns.left_out[f"of the unknown category {category}"] += count
            return columns
        foreign.memory, foreign.launches, foreign.gradients = (
            columns.memory,
            columns.launches,
            columns.gradients,
        )
        foreign.left_out += columns.left_out
        if len(foreign):
            foreign.mended["of no category of PyTorch's, taken for operators on CPU threads"] += len(foreign)
        return foreign

    def _complete(self, event: Raw) -> None:
        category = event.get("cat")
        if type(category) is str:
            known = self._kinds.get(category)
            if known is None:
                known = self._kinds[category] = (kind_of(category), is_known(category))
            kind, ours = known
        else:
            kind, ours = None, False
        columns = self._columns
        if ours and not self._ours:
            self._ours = True
            self._foreign = Columns()  # nothing of it is needed any more
        if not ours:
            self._unknown[_quoted(category)] += 1
            if self._ours:
                return
            columns, kind = self._foreign, EventKind.OPERATOR
        if kind is None:
            return
        start, duration = event.get("ts"), event.get("dur")
        reason = _unusable(start, duration)
        if reason:
            columns.left_out[reason] += 1
        else:
            _append(columns, kind, event, start, duration)


def _flow(event: Raw, columns: Columns) -> None:
    category = event.get("cat")
    if category == "ac2g" or (isinstance(category, str) and category.lower() in LAUNCH_FLOWS):
        columns.launches.append(event)
    elif isinstance(category, str) and category.lower() in GRADIENT_FLOWS:
        columns.gradients.append(event)


def _append(columns: Columns, kind: EventKind, event: Raw, start: Any, duration: Any) -> None:
    args = event.get("args")
    if type(args) is not dict:
        if args is not None:
            columns.mended["whose arguments are no object, and were ignored"] += 1
        args = _NOTHING
    name = event.get("name")
    if type(name) is not str:
        columns.mended["without a readable name"] += 1
        name = _UNNAMED
    if kind is EventKind.OPERATOR and name.startswith(ANNOTATIONS_AMONG_OPERATORS):
        kind = EventKind.ANNOTATION
    lanes, names = columns.lanes, columns.names
    process, thread = event.get("pid"), event.get("tid")
    get = args.get
    columns.kind.append(kind)
    columns.name.append(names.setdefault(name, len(names)))
    columns.lane.append(
        lanes.stream(process, thread, args) if kind in ON_STREAMS else lanes.thread(process, thread)
    )
    whole, rest = parts_of(start)
    columns.start.append(whole)
    columns.start_rest.append(rest)
    columns.duration.append(duration)
    # To a profiler 0 is no call and no operator, but autograd's first node.
    columns.correlation.append(identifier(get("correlation")) or UNKNOWN)
    columns.external_id.append(identifier(get(_NEW) if _NEW in args else get(_OLD)) or UNKNOWN)
    columns.sequence.append(identifier(get("Sequence number")))
    details = {key: value for key, value in args.items() if key not in FORGOTTEN_DETAILS and value != ""}
    columns.details.append(details or _NOTHING)


def _unusable(start: Any, duration: Any) -> str:
    """Why an event has no place in time; empty where it has."""
    if type(start) not in _NUMBERS or not -LARGEST < start < LARGEST:
        return "without a start that is a number"
    if type(duration) not in _NUMBERS or duration != duration:
        return "without a duration that is a number"
    if duration < 0:
        return "with a duration below zero"
    return "that last longer than a day" if duration > LONGEST_US else ""


def _quoted(category: Any) -> str:
    return repr(category)[:40]

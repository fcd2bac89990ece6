"""A task graph in the making: what the passes of `build` read and add to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(kw_only=True)
class Row:
    """A task before its lane is put in order.

    Attributes:
        event: of the trace; NOTHING where the task is a marker or a part of an event.
        begin_us: when its lane reached it.
        start_us: when it began to do what cannot be waiting: what it waited for is an edge.
        cut_gap: the time before it is no work of its lane: somebody else's work explains it.
    """

    name: str
    kind: TaskKind
    lane: int
    begin_us: float
    end_us: float
    start_us: float
    event: int = NOTHING
    cut_gap: bool = False
    phase: Phase = Phase.OTHER
    layer: str = ""
    operator: str = ""
    step: int = NOTHING
    size_bytes: float = float("nan")
    launched_by: int = NOTHING
    position: int = NOTHING


@dataclass
class Draft:
    """Rows and edges of one trace; indices of rows stay what they are until `finish`.

    Attributes:
        on_lane: rows of each lane, in its order, once `arrange` has been called.
        task_of_event: event of the trace -> its row.
        steps: (name, begin_us, end_us) of each, in order.
        launches: rows that launch work -> rows of that work, by start.
        outer_call: call that another call makes -> that one (events).
        returns: call that launches a copy and waits for it -> the row of its second half.
        launch_lag_us: name of a call -> from its start to its kernel's on an idle stream; "" is for all.
        thread_of_lane, stream_of_lane: lane of the trace -> lane here.
    """

    trace: Trace
    lanes: list[Lane] = field(default_factory=list[Lane])
    rows: list[Row] = field(default_factory=list[Row])
    edges: list[tuple[int, int, float, bool, EdgeKind]] = field(default_factory=list)
    steps: list[tuple[str, float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])
    inflation: float = float("nan")
    card: str = ""
    formats: tuple[str, ...] | None = None
    on_lane: list[list[int]] = field(default_factory=list[list[int]])
    task_of_event: dict[int, int] = field(default_factory=dict[int, int])
    launches: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    outer_call: dict[int, int] = field(default_factory=dict[int, int])
    returns: dict[int, int] = field(default_factory=dict[int, int])
    launch_lag_us: dict[str, float] = field(default_factory=dict[str, float])
    _linked_from: dict[int, int] = field(default_factory=dict[int, int])
    thread_of_lane: dict[int, int] = field(default_factory=dict[int, int])
    stream_of_lane: dict[int, int] = field(default_factory=dict[int, int])

    def lane(self, lane: Lane) -> int:
        """A new lane's number."""
        self.lanes.append(lane)
        return len(self.lanes) - 1

    def add(self, row: Row) -> int:
        """A new row's number."""
        self.rows.append(row)
        number = len(self.rows) - 1
        if row.event != NOTHING:
            self.task_of_event[row.event] = number
        return number

    def edge(
        self, source: int, target: int, kind: EdgeKind, *, lag_us: float = 0.0, from_start: bool = False
    ) -> None:
        """`target` waits for `source`."""
        self.edges.append((source, target, lag_us, from_start, kind))

    def arrange(self) -> None:
        """Put the rows of each lane in order."""
        self.on_lane = [[] for _ in self.lanes]
        for number in sorted(range(len(self.rows)), key=self._rank):
            row = self.rows[number]
            row.position = len(self.on_lane[row.lane])
            self.on_lane[row.lane].append(number)

    def _rank(self, number: int) -> tuple[float, float, int]:
        row = self.rows[number]
        return row.begin_us, row.end_us, number

    def before(self, number: int) -> int:
        """The row before on the same lane, NOTHING for the first one."""
        row = self.rows[number]
        return self.on_lane[row.lane][row.position - 1] if row.position > 0 else NOTHING

    def after(self, number: int) -> int:
        """The row after on the same lane, NOTHING for the last one."""
        row, lane = self.rows[number], self.on_lane[self.rows[number].lane]
        return lane[row.position + 1] if row.position + 1 < len(lane) else NOTHING

    def latency_us(self, call: str) -> float:
        """Microseconds from the start of such a call to that of its kernel on an idle stream."""
        return self.launch_lag_us.get(call, self.launch_lag_us.get("", 0.0))

    def row_of_correlation(self, correlation: object) -> int:
        """The row of the call that has this number, NOTHING if none was recorded."""
        return self.correlated.get(correlation, NOTHING) if isinstance(correlation, int) else NOTHING

    @cached_property
    def correlated(self) -> dict[int, int]:
        """Number that joins a call with its work -> the call's row."""
        events = self.trace.events
        pairs = (
            (self.outer_call.get(e, e), int(events.correlation[e]))
            for e in events.of(EventKind.CALL).tolist()
        )
        return {
            number: self.task_of_event[e] for e, number in pairs if number >= 0 and e in self.task_of_event
        }

    def linked_from(self, lane: int) -> int:
        """The first place on a stream whose launch was recorded: before it stands what is older."""
        if lane not in self._linked_from:
            places = (p for p, n in enumerate(self.on_lane[lane]) if self.rows[n].launched_by != NOTHING)
            self._linked_from[lane] = next(places, len(self.on_lane[lane]))
        return self._linked_from[lane]

    def ready_us(self, number: int) -> float:
        """When a device's task could have started, had it waited only for its launch and its stream."""
        row, before = self.rows[number], self.before(number)
        stream_us = row.start_us if before == NOTHING else self.rows[before].end_us
        if row.launched_by == NOTHING:
            return stream_us
        launch = self.rows[row.launched_by]
        launched_us = launch.start_us + self.latency_us(launch.name)
        return launched_us if before == NOTHING else max(launched_us, stream_us)

    def rows_of(self, *kinds: TaskKind) -> list[int]:
        """Rows of these kinds, in the order of their numbers."""
        return [number for number, row in enumerate(self.rows) if row.kind in kinds]

    def device_rows(self) -> list[int]:
        """Rows that a device runs."""
        return [number for number, row in enumerate(self.rows) if row.kind.on_device]


def finish(draft: Draft, *, gaps: Sequence[float]) -> TaskGraph:
    """The graph of a draft.

    Args:
        gaps: microseconds before each row, on its lane.
    """
    order = [number for lane in draft.on_lane for number in lane]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = [draft.rows[number] for number in order]
    names: dict[str, int] = {}

    def index(name: str) -> int:
        return names.setdefault(name, len(names)) if name else NOTHING

    edges = Edges.of(draft.edges)
    tasks = Tasks(
        key=np.arange(len(rows), dtype=np.int64),
        name=_ints(index(row.name or "?") for row in rows),
        layer=_ints(index(row.layer) for row in rows),
        operator=_ints(index(row.operator) for row in rows),
        kind=_ints(row.kind for row in rows),
        phase=_ints(row.phase for row in rows),
        lane=_ints(row.lane for row in rows),
        step=_ints(row.step for row in rows),
        duration_us=np.array([max(row.end_us - row.start_us, 0.0) for row in rows], np.float64),
        gap_us=np.array([gaps[number] for number in order], np.float64),
        recorded_us=np.array([row.start_us for row in rows], np.float64),
        size_bytes=np.array([row.size_bytes for row in rows], np.float64),
        priority=np.zeros(len(rows)),
    )
    return TaskGraph(
        tasks=tasks,
        edges=Edges(
            source=place[edges.source] if len(edges) else edges.source,
            target=place[edges.target] if len(edges) else edges.target,
            lag_us=edges.lag_us,
            from_start=edges.from_start,
            kind=edges.kind,
        ),
        lanes=tuple(draft.lanes),
        names=tuple(names),
        step_names=tuple(name for name, _, _ in draft.steps),
        source=draft.trace.source,
        notes=(*draft.trace.notes, *draft.notes),
        warnings=(*draft.trace.warnings, *draft.warnings),
        inflation=draft.inflation,
        host_events=len(draft.trace.events.of(EventKind.OPERATOR, EventKind.CALL, EventKind.ANNOTATION)),
        card=draft.card,
        formats=draft.formats,
    )


def _ints(values: object) -> Ints:
    return np.fromiter(values, np.int64)  # pyright: ignore


def device_events(trace: Trace) -> NDArray[np.intp]:
    """Indices of a trace's device work, by start."""
    return trace.events.of(EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET)

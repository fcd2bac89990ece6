"""The task graph: what one process of a run did, as arrays, and what each task waits for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daceml.errors import TaskGraphError
from daceml.simulation.structure import Structure
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

NOTHING = -1  # in a column of names, steps or lanes


@dataclass(frozen=True, kw_only=True, eq=False)
class Tasks:
    """Columns of n tasks; those of one ordered lane stand in the order in which the lane runs them.

    Attributes:
        key: [n] number of a task that no edit changes; inserted tasks get new ones.
        name: [n] index in the names of the graph; so are `layer` and `operator`, where NOTHING is none.
        layer: [n] the module that a task belongs to ("encoder.0.attention").
        operator: [n] the framework's operator whose call led to it ("aten::conv2d"), in the forward phase.
        kind: [n] `TaskKind`.
        phase: [n] `Phase`.
        lane: [n] index in the lanes of the graph.
        step: [n] number of the training step in the order of the run, NOTHING outside of all.
        duration_us: [n] how long it runs, waiting for others left out.
        gap_us: [n] what passes on an ordered lane between the end of the task before and the start of this
            one; below zero where a device lets kernels of one stream overlap.
        recorded_us: [n] when the run started it; NaN where it was inserted.
        size_bytes: [n] that a copy, memset or collective moves; NaN where nobody knows.
        priority: [n] for scheduling policies: higher goes first.
    """

    key: Ints
    name: Ints
    layer: Ints
    operator: Ints
    kind: Ints
    phase: Ints
    lane: Ints
    step: Ints
    duration_us: Floats
    gap_us: Floats
    recorded_us: Floats
    size_bytes: Floats
    priority: Floats

    def __len__(self) -> int:
        return len(self.key)

    def taken(self, index: NDArray[np.intp] | Mask) -> Tasks:
        """These rows, in this order."""
        columns = {field.name: getattr(self, field.name)[index] for field in dataclasses.fields(self)}
        return Tasks(**columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Edges:
    """Columns of m dependencies between tasks, beside the order of the lanes.

    `target` starts no earlier than `lag_us` after the end of `source`, or after its start where `from_start`.
    """

    source: Ints
    target: Ints
    lag_us: Floats
    from_start: Mask
    kind: Ints

    def __len__(self) -> int:
        return len(self.source)

    def taken(self, index: NDArray[np.intp] | Mask) -> Edges:
        """These rows, in this order."""
        columns = {field.name: getattr(self, field.name)[index] for field in dataclasses.fields(self)}
        return Edges(**columns)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float, bool, EdgeKind]]) -> Edges:
        """From (source, target, lag_us, from_start, kind) of each."""
        source, target, lag_us, from_start, kind = list(zip(*rows, strict=True)) or [()] * 5
        return cls(
            source=np.array(source, np.int64),
            target=np.array(target, np.int64),
            lag_us=np.array(lag_us, np.float64),
            from_start=np.array(from_start, np.bool_),
            kind=np.array(kind, np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence[Edges]) -> Edges:
        """One after the other."""
        if not parts:
            return cls.of(())
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskGraph:
    """What a process did, and what each task waits for. Nothing changes it: an edit is a new graph.

    Times are microseconds from the first moment of the trace.

    Attributes:
        names: that columns of tasks point into.
        step_names: as the profiler named the steps.
        source: what it was made of, for messages.
        notes: what was assumed, or could not be known, when it was made.
        warnings: why figures of the run may be wrong; shown before them.
        inflation: how many times as long the profiler made a step; NaN where nobody measured it.
        host_events: operators, calls and annotations that the profiler recorded on threads.
        card: that ran the kernels; "" where the trace does not say, or names several.
        formats: in which the card computes, of those that questions name; None where it is not known.
    Raises:
        TaskGraphError: a column of another length, an index out of range, a time that is no number.
    """

    tasks: Tasks
    edges: Edges
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    step_names: tuple[str, ...] = ()
    source: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    inflation: float = float("nan")
    host_events: int = 0
    card: str = ""
    formats: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check(self)

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def structure(self) -> Structure:
        """Neighbours of every task, and an order in which all can be computed."""
        ordered = np.array([lane.ordered for lane in self.lanes], np.bool_)
        return Structure.of(self.tasks.lane, ordered, self.edges.source, self.edges.target)

    def with_times(
        self, *, duration_us: Floats | None = None, gap_us: Floats | None = None, lag_us: Floats | None = None
    ) -> TaskGraph:
        """The same tasks and dependencies with other times; what is known of the structure is kept."""
        times = {"duration_us": duration_us, "gap_us": gap_us}
        tasks = dataclasses.replace(self.tasks, **{k: v for k, v in times.items() if v is not None})
        edges = self.edges if lag_us is None else dataclasses.replace(self.edges, lag_us=lag_us)
        # Whatever is not a time was checked when this graph was made; for a search, that is most of the cost.
        graph = object.__new__(TaskGraph)
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        graph.__dict__.update({**fields, "tasks": tasks, "edges": edges})
        _check_shapes(graph)
        _check_times(graph)
        if "structure" in self.__dict__:
            graph.__dict__["structure"] = self.structure
        return graph

    def name_of(self, task: int) -> str:
        """What the run called a task."""
        return self.names[self.tasks.name[task]]

    def layer_of(self, task: int) -> str:
        """The module that a task belongs to; empty where none is known."""
        index = self.tasks.layer[task]
        return "" if index == NOTHING else self.names[index]

    def operator_of(self, task: int) -> str:
        """The framework's operator that led to a task; empty where none is known."""
        index = self.tasks.operator[task]
        return "" if index == NOTHING else self.names[index]

    def where_name(self, predicate: Callable[[str], bool], column: str = "name") -> Mask:
        """[n] the tasks whose name, layer or operator the predicate takes; asked once for each name."""
        taken = np.array([predicate(name) for name in self.names] + [False], np.bool_)
        return taken[getattr(self.tasks, column)]  # NOTHING, -1, is the last one

    def on_device(self) -> Mask:
        """[n] which tasks a device or channel runs."""
        known = np.array([kind.on_device for kind in TaskKind], np.bool_)
        return known[self.tasks.kind]

    def index_of(self, keys: Ints) -> NDArray[np.intp]:
        """[len(keys)] where the tasks of these keys stand now, -1 where they were removed."""
        order = np.argsort(self.tasks.key, kind="stable")
        place = np.searchsorted(self.tasks.key, keys, sorter=order)
        found = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(keys), np.intp)
        same = self.tasks.key[found] == keys if len(order) else np.zeros(len(keys), np.bool_)
        return np.where(same, found, -1)

    def lane_members(self, lane: int) -> NDArray[np.intp]:
        """The tasks of a lane, in its order."""
        return np.flatnonzero(self.tasks.lane == lane)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


def _check_shapes(graph: TaskGraph) -> None:
    for table, rows in ((graph.tasks, len(graph.tasks)), (graph.edges, len(graph.edges))):
        for field in dataclasses.fields(table):
            column = getattr(table, field.name)
            if column.shape != (rows,):
                raise TaskGraphError(
                    f"column {field.name!r} has shape {column.shape}",
                    where=graph.source,
                    fix=f"give it one value for each of the {rows} rows",
                )


def _check(graph: TaskGraph) -> None:
    _check_shapes(graph)
    tasks, edges = graph.tasks, graph.edges
    count = len(tasks)
    known = len(graph.names)
    bounds = (
        ("name", tasks.name, 0, known),
        ("layer", tasks.layer, NOTHING, known),
        ("operator", tasks.operator, NOTHING, known),
        ("lane", tasks.lane, 0, len(graph.lanes)),
        ("kind", tasks.kind, 0, len(TaskKind)),
        ("phase", tasks.phase, 0, len(Phase)),
        ("step", tasks.step, NOTHING, max(len(graph.step_names), 1)),
        ("source", edges.source, 0, count),
        ("target", edges.target, 0, count),
        ("kind of an edge", edges.kind, 0, len(EdgeKind)),
    )
    for name, column, low, high in bounds:
        if len(column) and not (column.min() >= low and column.max() < high):
            wrong = int(np.flatnonzero((column < low) | (column >= high))[0])
            raise TaskGraphError(
                f"{name} {column[wrong]} in row {wrong} is out of range",
                where=graph.source,
                fix=f"give a number from {low} to {high - 1}",
            )
    _check_times(graph)
    # Ascending keys, which most graphs have, are told apart without sorting them.
    if not (np.diff(tasks.key) > 0).all() and len(np.unique(tasks.key)) != count:
        raise TaskGraphError(
            "two tasks have one key", where=graph.source, fix="give every task a key of its own"
        )


def _check_times(graph: TaskGraph) -> None:
    tasks, edges = graph.tasks, graph.edges
    if (tasks.duration_us < 0).any() or not np.isfinite(tasks.duration_us).all():
        wrong = int(np.flatnonzero(~(tasks.duration_us >= 0) | ~np.isfinite(tasks.duration_us))[0])
        raise TaskGraphError(
            f"task {graph.name_of(wrong)!r} lasts {tasks.duration_us[wrong]} us",
            where=graph.source,
            fix="give a finite number that is not below zero",
        )
    for name, column in (("gap_us", tasks.gap_us), ("lag_us", edges.lag_us)):
        if not np.isfinite(column).all():
            wrong = int(np.flatnonzero(~np.isfinite(column))[0])
            raise TaskGraphError(
                f"{name} in row {wrong} is {column[wrong]}", where=graph.source, fix="give a finite number"
            )

"""One task graph of all ranks, in which a collective begins when its last member has arrived."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from daceml.errors import GlobalGraphError
from daceml.simulation.distributed.clocks.alignment import Alignment
from daceml.simulation.distributed.matching import MatchedRun
from daceml.simulation.distributed.network_lanes import Carried, carried_by
from daceml.simulation.distributed.rank_lanes import moved, side_by_side
from daceml.simulation.distributed.waits import Waits, separated
from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, TaskKind

_T = TypeVar("_T", bound=np.generic)


def global_graph(
    run: MatchedRun, alignment: Alignment, *, links: Mapping[str, str] | None = None
) -> TaskGraph:
    """All ranks on the clock of the first one, joined by what they communicated.

    Each member's kernel becomes two moments on its stream, the paper's virtual operations: "In" is when the
    member has arrived and "Out" when it goes on. Between them stands one task of kind COLLECTIVE on a lane of
    the network, which lasts as long as pure communication did. All that waits for each other is an edge of
    kind CHANNEL: from every In to that task, from it to every Out, which follows after the time by which the
    member was recorded to end later than the first one. Whoever models a collective in more detail replaces
    the network's task and keeps In and Out.

    Args:
        alignment: of `run.timings`.
        links: name of a group -> name of the link that it goes over. Groups of one link share it: it carries
            what is ready first. A group without a link has lanes of its own, as many as it was seen to use at
            once, in the recorded order.
    Raises:
        GlobalGraphError: there is no rank, or something that was communicated is no task of its rank.
    """
    if not run.ranks:
        raise GlobalGraphError("a run without ranks", fix="give the trace of at least one")
    graph = side_by_side(_on_one_clock(run, alignment))
    waits = separated(run.timings, alignment)
    members = [(k, column, call) for k, match in enumerate(run.matches) for column, call in match.members]
    if not members:
        return dataclasses.replace(graph, notes=(*graph.notes, *run.notes))
    joins = _Joins.of(run, graph, members)
    carried = carried_by(run.matches, waits, {} if links is None else links, first=len(graph.lanes))
    return _joined(run, graph, waits, joins, carried, _begin_us(run, alignment))


def coarse_graph(run: MatchedRun, alignment: Alignment) -> TaskGraph:
    """All ranks on the clock of the first one, each collective as long as its rank recorded it.

    Nobody waits for another rank, as in Daydream, which knows one rank and one duration for a collective.
    """
    return side_by_side(_on_one_clock(run, alignment))


def _begin_us(run: MatchedRun, alignment: Alignment) -> float:
    """Time zero of the joint graph: when the first rank's trace begins, by the first clock."""
    firsts = np.array([one.first_us - run.origin_us for one in run.ranks])
    return float(alignment.aligned_us(firsts).min())


def _on_one_clock(run: MatchedRun, alignment: Alignment) -> list[tuple[int, TaskGraph]]:
    firsts = np.array([one.first_us - run.origin_us for one in run.ranks])
    begins = alignment.aligned_us(firsts) - _begin_us(run, alignment)
    return [
        (one.rank, moved(one.graph, float(begins[column]), float(alignment.drift_ppm[column])))
        for column, one in enumerate(run.ranks)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Joins:
    """What each member of each communication is in the joint graph.

    Attributes:
        match, column: [j] of each member.
        task: [j] its kernel.
    """

    match: NDArray[np.int64]
    column: NDArray[np.int64]
    task: NDArray[np.int64]

    @classmethod
    def of(cls, run: MatchedRun, graph: TaskGraph, members: Sequence[tuple[int, int, int]]) -> _Joins:
        first = np.cumsum([0, *(len(one.graph) for one in run.ranks)])
        tasks: list[int] = []
        for _, column, call in members:
            rank = run.ranks[column]
            task = rank.communications[call].task
            if task == NOTHING:
                raise GlobalGraphError(
                    f"rank {rank.rank}'s {rank.communications[call].what} is no task of its graph",
                    where=rank.graph.source,
                    why="no kernel, and no work of a process group that an operator asked for, begins then",
                    fix="record operators as well (ProfilerActivity.CPU), on every rank",
                )
            tasks.append(int(first[column]) + task)
        match, column, _ = zip(*members, strict=True)
        return cls(match=np.array(match), column=np.array(column), task=np.array(tasks, np.int64))


def _joined(
    run: MatchedRun, graph: TaskGraph, waits: Waits, joins: _Joins, carried: Carried, begin_us: float
) -> TaskGraph:
    """Kernels become In, an Out is put behind each, and the network's tasks behind all."""
    count, old = len(graph), graph.tasks
    names = {name: index for index, name in enumerate(graph.names)}
    labels = [f"{match.kind} {match.group.name} #{k}" for k, match in enumerate(run.matches)]
    index = {
        prefix: np.array([names.setdefault(prefix + label, len(names)) for label in labels], np.int64)
        for prefix in ("In ", "Out ", "")
    }
    moment = np.full(len(joins.task), int(TaskKind.MARKER))
    nowhere = np.full(len(joins.task), NOTHING)  # markers of a step say where it begins and ends
    ins = dataclasses.replace(
        old,
        name=_with(old.name, joins.task, index["In "][joins.match]),
        duration_us=_with(old.duration_us, joins.task, np.zeros(len(joins.task))),
        kind=_with(old.kind, joins.task, moment),
        step=_with(old.step, joins.task, nowhere),
    )
    kernels, key = old.taken(joins.task), int(old.key.max()) + 1
    alone = ~waits.joins[joins.match, joins.column]
    outs = dataclasses.replace(
        kernels,
        key=key + np.arange(len(joins.task)),
        name=index["Out "][joins.match],
        kind=moment,
        step=nowhere,
        duration_us=np.zeros(len(joins.task)),
        gap_us=np.where(alone, waits.lag_us[joins.match, joins.column], 0.0),
        recorded_us=kernels.recorded_us + kernels.duration_us,
    )
    order = np.argsort(waits.begin_us, kind="stable")
    _, first_member = np.unique(joins.match, return_index=True)
    network = dataclasses.replace(
        old.taken(joins.task[first_member[order]]),
        key=key + len(joins.task) + np.arange(len(order)),
        name=index[""][order],
        kind=np.full(len(order), int(TaskKind.COLLECTIVE)),
        lane=carried.lane[order],
        duration_us=waits.pure_us[order],
        gap_us=np.zeros(len(order)),
        recorded_us=waits.begin_us[order] - begin_us,
        size_bytes=np.array([match.size_bytes for match in run.matches])[order],
        priority=np.zeros(len(order)),
    )
    every = Tasks(
        **{
            column.name: np.concatenate([getattr(part, column.name) for part in (ins, outs, network)])
            for column in dataclasses.fields(Tasks)
        }
    )
    anchors = np.concatenate([np.arange(count), joins.task + 0.5, count + np.arange(len(order))])
    taken = np.argsort(anchors, kind="stable")
    place_of = np.empty(len(taken), np.int64)
    place_of[taken] = np.arange(len(taken))
    edges = _edges(graph, waits, joins, order)
    return dataclasses.replace(
        graph,
        tasks=every.taken(taken),
        edges=dataclasses.replace(edges, source=place_of[edges.source], target=place_of[edges.target]),
        lanes=(*graph.lanes, *carried.lanes),
        names=tuple(names),
        notes=(*graph.notes, *run.notes),
    )


def _with(column: NDArray[_T], rows: NDArray[np.int64], values: NDArray[_T]) -> NDArray[_T]:
    """A column with other values in some rows."""
    changed = column.copy()
    changed[rows] = values
    return changed


def _edges(graph: TaskGraph, waits: Waits, joins: _Joins, order: NDArray[np.int64]) -> Edges:
    """Who waited for a kernel's end waits for its Out; Ins, the network and Outs wait for each other."""
    count, members = len(graph), len(joins.task)
    out_of = np.arange(count)
    out_of[joins.task] = count + np.arange(members)
    old = graph.edges
    source = np.where(old.from_start, old.source, out_of[old.source])
    network = np.empty(len(order), np.int64)
    network[order] = count + members + np.arange(len(order))
    waiting = waits.joins[joins.match, joins.column]
    arriving = Edges(
        source=joins.task, target=network[joins.match], lag_us=np.zeros(members),
        from_start=np.zeros(members, np.bool_), kind=np.full(members, int(EdgeKind.CHANNEL)),
    )  # fmt: skip
    leaving = Edges(
        source=network[joins.match], target=count + np.arange(members),
        lag_us=waits.lag_us[joins.match, joins.column], from_start=np.zeros(members, np.bool_),
        kind=np.full(members, int(EdgeKind.CHANNEL)),
    )  # fmt: skip
    return Edges.joined([dataclasses.replace(old, source=source), arriving, leaving.taken(waiting)])

"""One rank of a distributed run: its task graph, its clock, and what it communicated, from its trace."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from daceml.errors import CommunicationError
from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.building import runtime_calls
from daceml.simulation.building.build import build
from daceml.simulation.building.process_group_work import WORK, launching_operators
from daceml.simulation.distributed.communication import (
    Communication,
    CommunicationKind,
    Group,
    kind_named,
    message_bytes,
)
from daceml.simulation.graph import NOTHING, TaskGraph

_ANNOTATION = re.compile(r"^(nccl|rccl|gloo|mpi|ucc):")
_PEER = re.compile(r"(\d+)\s*(?:->|<-)\s*(\d+)")  # "send 0->1", "recv 1<-0": the rank itself stands first
_NESTED = 16  # events of one thread that may stand around a call


@dataclass(frozen=True, kw_only=True, eq=False)
class RankRun:
    """What is known of one rank.

    Attributes:
        host: whose clock it reads; ranks of one host share it.
        first_us: what that clock showed at time zero of the graph and of the communications.
        multiprocessors: of its device; 0 where there is none.
    """

    rank: int
    host: str
    first_us: float
    graph: TaskGraph
    communications: tuple[Communication, ...]
    multiprocessors: int = 0


def rank_run(trace: Trace, graph: TaskGraph | None = None) -> RankRun:
    """What the trace of one rank tells.

    A kernel of NCCL says little of itself: what it is a part of says the annotation or operator around the
    call that launched it, or newer versions of torch in the kernel's own details.

    Args:
        graph: of the trace, if it has been built.
    Raises:
        CommunicationError: the trace has no rank, or does not say what a kernel or work communicates.
    """
    if trace.rank is None:
        raise CommunicationError(
            "a trace of a distributed run tells no rank",
            where=trace.source,
            why="neither its header nor its name says one",
            fix="name the file rank0.json, or record where torch.distributed is initialised",
        )
    graph = build(trace) if graph is None else graph
    return RankRun(
        rank=trace.rank,
        host=str(trace.header.get("host_name") or f"host of rank {trace.rank}"),
        first_us=trace.first_us,
        graph=graph,
        communications=_communications(trace, graph),
        multiprocessors=max((int(device.get("numSms", 0)) for device in trace.devices), default=0),
    )


def _communications(trace: Trace, graph: TaskGraph) -> tuple[Communication, ...]:
    """By launch: that is the order in which all members of a group make their calls."""
    lanes = [lane.name for lane in graph.lanes]
    places = {
        (lanes[lane], start_us): task
        for task, (lane, start_us) in enumerate(
            zip(graph.tasks.lane.tolist(), graph.tasks.recorded_us.tolist(), strict=True)
        )
    }
    groups, found = _Groups(trace), list[tuple[float, Communication]]()
    kernels = list(_kernels(trace))
    for event, launched_us, details, names in kernels or list(_works(trace)):
        kind = next((kind for kind in map(kind_named, names) if kind is not None), None)
        if kind is None:
            raise CommunicationError(
                f"{trace.name_of(event)!r} communicates, but nothing says what",
                where=trace.source,
                why=f"neither does any of {', '.join(map(repr, names))}",
                fix="record the CPU side as well, whose annotations name collectives (ProfilerActivity.CPU)",
            )
        start_us = float(trace.events.start_us[event])
        lane = trace.lanes[int(trace.events.lane[event])].name
        grid = details.get("grid")
        one = Communication(
            kind=kind,
            group=groups.of(details),
            start_us=start_us,
            end_us=start_us + float(trace.events.duration_us[event]),
            sequence=_whole(details.get("Seq")),
            size_bytes=message_bytes(details),
            peer=_peer(kind, details, names) if kind.point_to_point else None,
            task=places.get((lane, start_us), places.get((f"channel of {lane}", start_us), NOTHING)),
            channels=int(grid[0]) if isinstance(grid, list) and grid else 0,
        )
        found.append((launched_us, one))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))


# event, when it was launched, everything that is said of it, names that may say what it is, the best first
_Told = tuple[int, float, Mapping[str, Any], list[str]]


def _kernels(trace: Trace) -> Iterator[_Told]:
    """Kernels of communication, and what stands around the calls that launched them."""
    events = trace.events
    call_of = {int(events.correlation[call]): call for call in events.of(EventKind.CALL).tolist()}
    around = _Around(trace)
    for event in events.of(EventKind.KERNEL).tolist():
        name = trace.name_of(event)
        if not runtime_calls.COLLECTIVE.search(name):
            continue
        own = events.details[event]
        call = call_of.get(int(events.correlation[event]))
        outer = [] if call is None else around.events(call)
        details: dict[str, Any] = {}
        for other in (*reversed(outer), event):  # what is nearer says it better
            details.update({k: v for k, v in events.details[other].items() if v not in ("", [], None)})
        names = [str(own["Collective name"])] if "Collective name" in own else []
        names += [trace.name_of(other) for other in outer]
        details.setdefault("Collective name", "")
        names += [str(details["Collective name"]), name]
        yield event, float(events.start_us[event if call is None else call]), details, names


def _works(trace: Trace) -> Iterator[_Told]:
    """What backends of a CPU call their work, and the operators that launched it."""
    events = trace.events
    operators = launching_operators(trace)
    for event in events.of(EventKind.ANNOTATION, EventKind.OPERATOR).tolist():
        if not WORK.match(trace.name_of(event)):
            continue
        operator = operators.get(event)
        details: dict[str, Any] = dict(events.details[event])
        if operator is not None:
            details = {**events.details[operator], **details}
            details["operator inputs"] = events.details[operator].get("Concrete Inputs")
        launched_us = float(events.start_us[event if operator is None else operator])
        yield event, launched_us, details, [trace.name_of(event)]


class _Around:
    """Events of communication that stand around a call on its thread."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.on_lane: dict[int, list[int]] = {}
        for event in trace.events.of(EventKind.OPERATOR, EventKind.ANNOTATION).tolist():
            name = trace.name_of(event)
            if _ANNOTATION.match(name) or name == "record_param_comms" or name.startswith("c10d::"):
                self.on_lane.setdefault(int(trace.events.lane[event]), []).append(event)
        self.starts = {
            lane: [float(trace.events.start_us[event]) for event in events]
            for lane, events in self.on_lane.items()
        }

    def events(self, call: int) -> list[int]:
        """The innermost first."""
        events = self.trace.events
        lane, start_us = int(events.lane[call]), float(events.start_us[call])
        if lane not in self.on_lane:
            return []
        place = bisect_right(self.starts[lane], start_us)
        near = self.on_lane[lane][max(place - _NESTED, 0) : place]
        return [event for event in reversed(near) if events.end_us[event] >= start_us]


class _Groups:
    """Process groups by name, as the header and the events tell them."""

    def __init__(self, trace: Trace) -> None:
        told: Any = trace.header.get("distributedInfo") or {}
        self.known: dict[str, tuple[int, ...]] = {}
        for group in told.get("pg_config") or ():
            if isinstance(group, dict) and group.get("ranks"):
                self.known[str(group.get("pg_name", ""))] = tuple(sorted(map(int, group["ranks"])))
        self.source, self.world_size = trace.source, trace.world_size
        self._first = next(iter(self.known.items()), None)

    @property
    def world(self) -> tuple[str, tuple[int, ...]]:
        """The group of all ranks.

        Raises:
            CommunicationError: nothing says how many there are.
        """
        if self._first is not None:
            return self._first
        if self.world_size is None:
            raise CommunicationError(
                "a trace of a distributed run tells no number of ranks",
                where=self.source,
                why="its header has neither world_size nor groups, and an event names no ranks",
                fix="record where torch.distributed is initialised",
            )
        return "world", tuple(range(self.world_size))

    def of(self, details: Mapping[str, Any]) -> Group:
        """The group that details name; the first of all, that of the world, where they do not."""
        name = str(details.get("Process Group Name", ""))
        if not name:
            world, ranks = self.world
            return Group(name=world, ranks=ranks)
        if name not in self.known:
            text = str(details.get("Process Group Ranks", ""))
            ranks = () if "..." in text else tuple(sorted(int(rank) for rank in re.findall(r"\d+", text)))
            self.known[name] = ranks or self.world[1]
        return Group(name=name, ranks=self.known[name])


def _peer(kind: CommunicationKind, details: Mapping[str, Any], names: list[str]) -> int | None:
    """The other end: as newer kernels say it, as NCCL's annotations do, or as the operator was told."""
    said = _whole(details.get("Dst Rank" if kind is CommunicationKind.SEND else "Src Rank"))
    if said is not None and said >= 0:
        return said
    for name in names:
        if found := _PEER.search(name):
            return int(found[2])
    inputs: Any = details.get("operator inputs") or ()
    return _whole(inputs[2]) if len(inputs) > 2 else None  # c10d::send(tensors, group, rank, tag)


def _whole(value: object) -> int | None:
    try:
        return int(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return None

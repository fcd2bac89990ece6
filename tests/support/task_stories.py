"""Task graphs from sentences, for tests that read as stories with times.

    graph_of("launch cpu 2", "gemm gpu0 10 after launch", "step gpu0 1 after gemm")

A sentence is `NAME LANE DURATION` and then, in any order:

    gap 3             since the end of the task before on its lane; of the first one, when it may start
    after X Y + 5     X and Y end first, and 5 us pass after Y; `after` may stand several times
    with X + 5        5 us after the start of X
    kind copy         otherwise call on a CPU lane, kernel on a stream, collective on a channel
    phase backward    layer encoder.0    operator aten::mm    step 0
    priority 2        bytes 4096         at 100 (when the run recorded that it started)

Lanes named cpu* are CPU threads; gpu* and stream* are streams; link*, net* and channel* are channels. A lane
whose name is followed by `~` is not ordered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

LANE_KINDS = {"cpu": "cpu", "gpu": "stream", "stream": "stream", "link": "channel", "net": "channel"}
LANE_KINDS["channel"] = "channel"
USUAL_TASK = {"cpu": TaskKind.CALL, "stream": TaskKind.KERNEL, "channel": TaskKind.COLLECTIVE}
NUMBERS = ("gap", "priority", "bytes", "step", "at")
WORDS = ("kind", "phase", "layer", "operator")


@dataclass
class Told:
    """One sentence, understood."""

    name: str
    lane: str
    duration_us: float
    numbers: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    waits: list[tuple[str, float, bool]] = field(default_factory=list)  # name, lag, from start


def graph_of(*sentences: str) -> TaskGraph:
    """The task graph that these sentences tell; tasks of one lane run in the order of the sentences."""
    told = [_understood(sentence) for sentence in sentences]
    lanes = {row.lane.rstrip("~"): _lane(row.lane, told) for row in told}
    lane_number = {name: number for number, name in enumerate(lanes)}
    names: dict[str, int] = {}

    def named(text: str | None) -> int:
        return NOTHING if text is None else names.setdefault(text, len(names))

    usual = [USUAL_TASK[lanes[row.lane.rstrip("~")].kind] for row in told]
    tasks = Tasks(
        key=np.arange(len(told), dtype=np.int64),
        name=_ints(named(row.name) for row in told),
        layer=_ints(named(row.words.get("layer")) for row in told),
        operator=_ints(named(row.words.get("operator")) for row in told),
        kind=_ints(
            TaskKind[row.words["kind"].upper()] if "kind" in row.words else kind
            for row, kind in zip(told, usual, strict=True)
        ),
        phase=_ints(Phase[row.words.get("phase", "other").upper()] for row in told),
        lane=_ints(lane_number[row.lane.rstrip("~")] for row in told),
        step=_ints(row.numbers.get("step", NOTHING) for row in told),
        duration_us=np.array([row.duration_us for row in told], np.float64),
        gap_us=np.array([row.numbers.get("gap", 0) for row in told], np.float64),
        recorded_us=np.array([row.numbers.get("at", math.nan) for row in told], np.float64),
        size_bytes=np.array([row.numbers.get("bytes", math.nan) for row in told], np.float64),
        priority=np.array([row.numbers.get("priority", 0) for row in told], np.float64),
    )
    edges = Edges.of(
        (
            source := _meant(name, target, told),
            target,
            lag_us,
            from_start,
            _edge_kind(lanes[told[source].lane.rstrip("~")], lanes[row.lane.rstrip("~")]),
        )
        for target, row in enumerate(told)
        for name, lag_us, from_start in row.waits
    )
    steps = range(int(tasks.step.max(initial=NOTHING)) + 1)
    return TaskGraph(
        tasks=tasks,
        edges=edges,
        lanes=tuple(lanes.values()),
        names=tuple(names),
        step_names=tuple(f"step {number}" for number in steps),
        source="story",
    )


def _ints(values) -> np.ndarray:
    return np.array([int(value) for value in values], np.int64)


def _understood(sentence: str) -> Told:
    tokens = sentence.split()
    told = Told(tokens[0], tokens[1], float(tokens[2]))
    place = 3
    while place < len(tokens):
        word = tokens[place]
        if word in ("after", "with"):
            place = _waits(tokens, place, told)
        elif word in NUMBERS:
            told.numbers[word] = float(tokens[place + 1])
            place += 2
        elif word in WORDS:
            told.words[word] = tokens[place + 1]
            place += 2
        else:
            raise ValueError(f"{sentence!r}: what is {word!r}?")
    return told


def _waits(tokens: Sequence[str], place: int, told: Told) -> int:
    """Reads `after X + 5 Y`; returns where the next clause begins."""
    from_start = tokens[place] == "with"
    first = place = place + 1
    while place < len(tokens) and (place == first or not _is_clause(tokens, place)):
        name, place, lag_us = tokens[place], place + 1, 0.0
        if tokens[place : place + 1] in (["+"], ["-"]):
            lag_us = float(tokens[place] + tokens[place + 1])
            place += 2
        told.waits.append((name, lag_us, from_start))
    return place


def _is_clause(tokens: Sequence[str], place: int) -> bool:
    """Whether a clause begins here, and not a task that is called like one ("after gemm step")."""
    word, follows = tokens[place], tokens[place + 1 : place + 2]
    if word in NUMBERS:
        return bool(follows) and re.fullmatch(r"-?[\d.]+(e-?\d+)?", follows[0]) is not None
    return word in ("after", "with", *WORDS) and bool(follows)


def _meant(name: str, target: int, told: Sequence[Told]) -> int:
    """The task of this name: the last one before the sentence, or else the first one behind it."""
    same = [number for number, row in enumerate(told) if row.name == name]
    if not same:
        raise ValueError(f"nobody told of a task {name!r}")
    before = [number for number in same if number < target]
    return before[-1] if before else same[0]


def _lane(name: str, told: Sequence[Told]) -> Lane:
    plain = name.rstrip("~")
    prefix, number = re.fullmatch(r"([a-z]+).*?(\d*)", plain).groups()
    if prefix not in LANE_KINDS:
        raise ValueError(f"lane {name!r} is none of {', '.join(LANE_KINDS)}")
    kind = LANE_KINDS[prefix]
    device = None if kind == "cpu" else int(number or 0) if prefix == "gpu" else 0
    return Lane(kind=kind, name=plain, device=device, ordered=f"{plain}~" not in [row.lane for row in told])


def _edge_kind(source: Lane, target: Lane) -> EdgeKind:
    if "channel" in (source.kind, target.kind):
        return EdgeKind.CHANNEL
    kinds = {
        ("cpu", "stream"): EdgeKind.LAUNCH,
        ("stream", "cpu"): EdgeKind.SYNC,
        ("stream", "stream"): EdgeKind.STREAM_WAIT,
        ("cpu", "cpu"): EdgeKind.HANDOVER,
    }
    return kinds[source.kind, target.kind]

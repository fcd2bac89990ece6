"""Tasks of several ranks in one graph: whose they are says the name of their lane."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.task import Lane

NO_RANK = -1  # of what the network does
_KEY_ROOM = 1 << 32
_NAME = re.compile(r"^rank (\d+) ")


def lane_of_rank(rank: int, name: str) -> str:
    """What a lane of a rank is called in a graph of several."""
    return f"rank {rank} {name}"


def key_of(number: int, key: int) -> int:
    """The key, in a graph of several ranks, of the task that has a key in that of one of them.

    Args:
        number: of the rank's graph among those that were put side by side.
    """
    return number * _KEY_ROOM + key


def task_ranks(graph: TaskGraph) -> NDArray[np.int64]:
    """[n] the rank that each task belongs to, NO_RANK for the network's."""
    found = [_NAME.match(lane.name) for lane in graph.lanes]
    ranks = np.array([int(match[1]) if match else NO_RANK for match in found], np.int64)
    return ranks[graph.tasks.lane] if len(graph) else np.zeros(0, np.int64)


def side_by_side(graphs: Sequence[tuple[int, TaskGraph]]) -> TaskGraph:
    """Graphs of several ranks as one, in which nobody waits for a task of another rank.

    Args:
        graphs: (rank, graph) of each; steps of one name are one step, devices are told apart.
    """
    names: dict[str, int] = {}
    steps: dict[str, int] = {}
    devices: dict[tuple[int, int], int] = {}
    lanes: list[Lane] = []
    tasks: list[Tasks] = []
    edges: list[Edges] = []
    notes: list[str] = []
    warnings: list[str] = []
    first = 0
    for number, (rank, graph) in enumerate(graphs):
        of_name = np.array([names.setdefault(name, len(names)) for name in graph.names] + [NOTHING], np.int64)
        of_step = np.array(
            [steps.setdefault(name, len(steps)) for name in graph.step_names] + [NOTHING], np.int64
        )
        tasks.append(
            dataclasses.replace(
                graph.tasks,
                key=graph.tasks.key + key_of(number, 0),
                name=of_name[graph.tasks.name],
                layer=of_name[graph.tasks.layer],
                operator=of_name[graph.tasks.operator],
                lane=graph.tasks.lane + len(lanes),
                # without names there is one step, of number 0
                step=of_step[graph.tasks.step] if graph.step_names else graph.tasks.step,
            )
        )
        edges.append(
            dataclasses.replace(
                graph.edges, source=graph.edges.source + first, target=graph.edges.target + first
            )
        )
        for lane in graph.lanes:
            device = lane.device
            if device is not None:
                device = devices.setdefault((rank, device), len(devices))
            lanes.append(dataclasses.replace(lane, name=lane_of_rank(rank, lane.name), device=device))
        notes += [f"rank {rank}: {note}" for note in graph.notes]
        warnings += [f"rank {rank}: {warning}" for warning in graph.warnings]
        first += len(graph)
    columns = [field.name for field in dataclasses.fields(Tasks)]
    return TaskGraph(
        tasks=Tasks(**{name: np.concatenate([getattr(part, name) for part in tasks]) for name in columns}),
        edges=Edges.joined(edges),
        lanes=tuple(lanes),
        names=tuple(names),
        step_names=tuple(steps),
        source=f"{len(graphs)} ranks",
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def moved(graph: TaskGraph, offset_us: float, drift_ppm: float) -> TaskGraph:
    """A rank's graph by another clock: times stretched, and everything that begins by itself begins later.

    Args:
        offset_us: when the rank's trace begins by that clock, not below zero.
    """
    stretch = 1.0 + drift_ppm * 1e-6
    gap_us = graph.tasks.gap_us * stretch
    begins = graph.structure.before < 0
    gap_us[begins] += offset_us
    scaled = graph.with_times(
        duration_us=graph.tasks.duration_us * stretch, gap_us=gap_us, lag_us=graph.edges.lag_us * stretch
    )
    recorded_us = graph.tasks.recorded_us * stretch + offset_us
    return dataclasses.replace(scaled, tasks=dataclasses.replace(scaled.tasks, recorded_us=recorded_us))

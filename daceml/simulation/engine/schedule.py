"""When every task of a graph starts and ends."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daceml.errors import TaskGraphError
from daceml.notebook import html_of
from daceml.simulation.graph import TaskGraph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """What a simulation gave for n tasks, in microseconds.

    Attributes:
        start_us: [n] when each task starts.
        end_us: [n] when it ends.
        before: [n] the task that its lane ran before it, ordered or not; -1 for the first.
        order: [n] the tasks, each behind all that it waited for.
        policy: what chose on lanes that are not ordered.
    """

    graph: TaskGraph
    start_us: Floats
    end_us: Floats
    before: Ints
    order: Ints
    policy: Callable[..., Any] | None = None

    def __len__(self) -> int:
        return len(self.start_us)

    def _repr_html_(self) -> str:
        return html_of("schedule", self)

    def __getitem__(self, name: str) -> tuple[float, float]:
        """Start and end of the task of this name.

        Raises:
            TaskGraphError: no task or several have it.
        """
        tasks = np.flatnonzero(self.graph.where_name(lambda known: known == name))
        if len(tasks) == 0:
            near = difflib.get_close_matches(name, self.graph.names, n=3)
            there = ", ".join(map(repr, near or self.graph.names[:3]))
            raise TaskGraphError(
                f"no task is called {name!r}",
                where=self.graph.source,
                fix=f"ask for one that is there, such as {there}" if there else "the graph is empty",
            )
        if len(tasks) > 1:
            raise TaskGraphError(
                f"{len(tasks)} tasks are called {name!r}",
                where=self.graph.source,
                fix="take start_us and end_us of graph.where_name(...), which knows all of them",
            )
        return float(self.start_us[tasks[0]]), float(self.end_us[tasks[0]])

    @cached_property
    def makespan_us(self) -> float:
        """When the last task ends, from time zero; 0 where there is none."""
        return float(self.end_us.max(initial=0.0))

    @cached_property
    def busy_us(self) -> Floats:
        """[lanes] how long at least one task ran on each lane; where two overlap, that time counts once."""
        return np.array([self._busy_us(lane) for lane in range(len(self.graph.lanes))], np.float64)

    def _busy_us(self, lane: int) -> float:
        members = self.graph.lane_members(lane)
        members = members[np.argsort(self.start_us[members], kind="stable")]
        start, end = self.start_us[members], self.end_us[members]
        covered = np.maximum.accumulate(np.concatenate(([0.0], end)))[:-1]
        return float(np.maximum(end - np.maximum(start, covered), 0.0).sum())

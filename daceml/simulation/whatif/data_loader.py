"""Batches are loaded by workers beside the training loop, or need no loading at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.analysis.steps import step_times
from daceml.simulation.engine import simulate
from daceml.simulation.graph import Floats, Ints, TaskGraph
from daceml.simulation.primitives.edit import NewEdge, NewTask, with_tasks, without
from daceml.simulation.primitives.scale import scale, scale_gaps, set_duration
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind
from daceml.simulation.whatif.optimization import Estimate, Optimization

_BY_WORKERS = "MultiProcessing"
_MOST_WORKERS = 1024
_ROUNDS = 8
_EXACT = 1e-9  # share of the time of all loading


@dataclass(frozen=True, kw_only=True)
class DataLoaderWorkers(Optimization):
    """Loading on threads of its own; the loop takes a batch when it is there.

    What the profiler records of a loader without workers is the whole making of a batch, on the loop's
    thread. With workers the loop still takes it out of a queue, and unpacks it.

    Attributes:
        workers: that load; 0 leaves the run as it is.
        remove: batches are there at once and cost nothing, as Daydream's upper bound.
        prefetch: batches that each worker prepares ahead; PyTorch's default.
        fetch_us: what the loop takes to get a batch that is there.
        slowdown: of all CPU work by workers beside it: caches, memory, hyper-threads. A recorded ResNet-50
            run spends 1.2 times as long between launches with 4 workers as without.
    """

    option: ClassVar[str] = "data-loader"
    title: ClassVar[str] = "data loader workers"
    sees_others: ClassVar[bool] = True
    above_zero: ClassVar[tuple[str, ...]] = ("slowdown",)
    source: ClassVar[str] = "torch.utils.data.DataLoader; Zhu et al., Daydream (ATC '20), data loading tasks"

    workers: int = 4
    remove: bool = False
    prefetch: int = 2
    fetch_us: Estimate = Estimate(500.0, fast=80.0, slow=1500.0)
    slowdown: Estimate = Estimate(1.1, fast=1.0, slow=1.25)

    def check(self, graph: TaskGraph) -> str | None:
        data = graph.tasks.kind == TaskKind.DATA
        if not data.any():
            return "the run loads no data"
        if self.workers < 0 or self.prefetch < 1:
            return f"{self.workers} workers that prepare {self.prefetch} batches are none"
        if self.workers > _MOST_WORKERS:
            return f"{self.workers} workers are more than {_MOST_WORKERS}, which no machine runs"
        if (
            not self.remove
            and self.workers
            and (data & graph.where_name(lambda name: _BY_WORKERS in name)).any()
        ):
            return "workers load already: the loop's wait for them does not tell how long a batch takes"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        data = graph.tasks.kind == TaskKind.DATA
        if self.remove:
            return without(graph, data)
        if not self.workers:
            return graph
        batches = _batches(graph)
        load_us = self._load_us(graph, batches)
        heads = np.array([batch[0] for batch in batches])
        others = data.copy()
        others[heads] = False
        head = np.zeros(len(graph), np.bool_)
        head[heads] = True
        key = graph.tasks.key[heads]
        busy = scale(graph, ~graph.on_device() & ~data, self.slowdown.likely)
        busy = scale_gaps(busy, ~graph.on_device() & (graph.structure.before >= 0), self.slowdown.likely)
        loop = without(set_duration(busy, head, self.fetch_us.likely), others)
        return self._with_workers(loop, loop.index_of(key), load_us)

    def moved_us(self, graph: TaskGraph) -> float:
        """Loading, spread over the workers."""
        if self.remove or not self.workers:
            return 0.0
        return float(self._load_us(graph, _batches(graph)).sum()) / self.workers

    def _load_us(self, graph: TaskGraph, batches: Sequence[Ints]) -> Floats:
        """[batches] how long a worker takes for each."""
        recorded_us = [graph.tasks.duration_us[batch].sum() for batch in batches]
        return np.array(recorded_us, np.float64) * self.slowdown.likely

    @property
    def may_cost(self) -> bool:
        return not self.remove

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        if self.remove:
            return ("batches are in memory before they are needed, and taking them costs nothing",)
        if not self.workers:
            return ()
        return (
            f"{self.workers} workers load {self.slowdown.likely:g} times as long as the loop did, and slow"
            " it down as much",
            "the run goes on as it was going: workers have been loading since before the first step",
        )

    def _with_workers(self, graph: TaskGraph, fetches: Ints, load_us: Floats) -> TaskGraph:
        """Loading on lanes of its own; where it takes longer than the steps, the steps take as long as it."""
        schedule = simulate(graph)
        least_us = float(load_us.sum()) / self.workers
        short_us = least_us - step_times(schedule).total_us
        if short_us <= 0:
            return self._loaded(graph, fetches, load_us, begin_us=None)
        mean_us = np.full(len(load_us), load_us.mean())  # that counts in the long run
        begin_us = float(schedule.start_us[fetches[0]])
        short_us /= len(fetches)  # each batch makes the loop wait
        loaded = graph
        for _ in range(_ROUNDS):  # work of a device may overlap with the wait, so that the rest gets shorter
            begin_us += max(short_us, 0.0)
            loaded = self._loaded(graph, fetches, mean_us, begin_us=begin_us)
            short_us = least_us - step_times(simulate(loaded)).total_us
            if short_us <= _EXACT * least_us:
                break
        return loaded

    def _loaded(
        self, graph: TaskGraph, fetches: Ints, load_us: Floats, *, begin_us: float | None
    ) -> TaskGraph:
        """Each batch on the lane of a worker, at most so many ahead as the workers prepare.

        Args:
            begin_us: when the first batch is there, and one after the other from then on; None where the
                batches that workers prepare ahead are there before the first step.
        """
        lanes = [Lane(kind="cpu", name=f"loader worker {number}") for number in range(self.workers)]
        ahead = self.workers * self.prefetch
        tasks: list[NewTask] = []
        edges: list[NewEdge] = []
        for number, fetch in enumerate(fetches.tolist()):
            whole_us, gap_us = float(load_us[number]), 0.0
            if begin_us is None and number < ahead:
                whole_us = 0.0
            elif begin_us is not None and number < self.workers:
                ready_us = begin_us + number * whole_us / self.workers
                whole_us = min(whole_us, ready_us)
                gap_us = ready_us - whole_us
            tasks.append(
                NewTask(  # of no step, as it begins before the step that takes it
                    name=f"load {graph.name_of(fetch)}", kind=TaskKind.DATA, phase=Phase.DATA,
                    lane=len(graph.lanes) + number % self.workers, duration_us=whole_us, gap_us=gap_us,
                )
            )  # fmt: skip
            edges.append((~number, fetch, 0.0, False, EdgeKind.HANDOVER))
            if number >= ahead:
                edges.append((int(fetches[number - ahead]), ~number, 0.0, False, EdgeKind.HANDOVER))
        return with_tasks(graph, tasks, edges, lanes=lanes)


def _batches(graph: TaskGraph) -> list[Ints]:
    """Tasks that load one batch: those of a lane and a step, or else those that stand together."""
    tasks = graph.tasks
    data = np.flatnonzero(tasks.kind == TaskKind.DATA)
    found: list[list[int]] = []
    for task in data.tolist():
        last = found[-1][-1] if found else None
        same = (
            last is not None and tasks.lane[last] == tasks.lane[task] and tasks.step[last] == tasks.step[task]
        )
        if same and tasks.step[task] >= 0:
            found[-1].append(task)
        else:
            found.append([task])
    return [np.array(batch) for batch in found]

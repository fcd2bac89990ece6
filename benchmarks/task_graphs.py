"""How fast task graphs are replayed, whole and after one change: python -m benchmarks.task_graphs --check.

Graphs are made up. In "random", which the bars are on, tasks of ten lanes stand in no order, and edges join
any two. In "launches" one thread launches kernels on four streams, now and then waits for one, and streams
wait for each other: what is near in time is near in memory, as in recorded runs, so that a replay takes
hardly longer than copying its times; and a change shifts much of the run, so that much is computed again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.quiet import claim_priority
from daceml.interval import median_interval
from daceml.simulation.compiled import Engine
from daceml.simulation.engine import Schedule, resimulate, simulate
from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

REPLAY_LIMIT_MS = 200.0
RESIMULATION_LIMIT = 0.1  # of a replay
MILLION = 1_000_000

Ints = np.ndarray[Any, np.dtype[np.int64]]


def random_graph(tasks: int, *, lanes: int = 10, edges_per_task: float = 1.5, seed: int = 0) -> TaskGraph:
    """Edges join any two tasks, forward in an order that no row tells."""
    rng = np.random.default_rng(seed)
    lane_of_place = rng.integers(0, lanes, tasks)
    row_of_place = rng.permutation(tasks)
    for lane in range(lanes):  # rows of a lane stand in its order
        places = np.flatnonzero(lane_of_place == lane)
        row_of_place[places] = np.sort(row_of_place[places])
    lane = np.empty(tasks, np.int64)
    lane[row_of_place] = lane_of_place
    ends = np.sort(rng.integers(0, tasks, (int(tasks * edges_per_task), 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    source, target = row_of_place[ends[:, 0]], row_of_place[ends[:, 1]]
    return _graph(rng, lane, tuple(f"thread {number}" for number in range(lanes)), source, target)


def launches(tasks: int, *, streams: int = 4, seed: int = 0) -> TaskGraph:
    """Calls and the kernels that they launch take turns; one call of 100 waits for the kernel before it."""
    rng = np.random.default_rng(seed)
    kernels = np.arange(1, tasks, 2)
    lane = np.zeros(tasks, np.int64)
    lane[kernels] = 1 + np.repeat(rng.integers(0, streams, len(kernels) // 50 + 1), 50)[: len(kernels)]
    waiting = kernels[(kernels // 2 % 100 == 0) & (kernels + 1 < tasks)]
    joined = kernels[(kernels // 2 % 50 == 0) & (kernels > 1)]  # where the stream changes
    source = np.concatenate([kernels - 1, waiting, joined - 2])
    target = np.concatenate([kernels, waiting + 1, joined])
    return _graph(rng, lane, ("thread 0", *(f"stream {number}" for number in range(streams))), source, target)


def _graph(
    rng: np.random.Generator, lane: Ints, lanes: tuple[str, ...], source: Ints, target: Ints
) -> TaskGraph:
    count, joined = len(lane), len(source)
    none, unknown = np.full(count, NOTHING), np.full(count, np.nan)
    tasks = Tasks(
        key=np.arange(count),
        name=np.zeros(count, np.int64),
        layer=none,
        operator=none,
        kind=np.full(count, int(TaskKind.KERNEL)),
        phase=np.full(count, int(Phase.OTHER)),
        lane=lane,
        step=none,
        duration_us=rng.exponential(10, count),
        gap_us=rng.exponential(1, count),
        recorded_us=unknown,
        size_bytes=unknown,
        priority=np.zeros(count),
    )
    edges = Edges(
        source=source,
        target=target,
        lag_us=rng.exponential(3, joined),
        from_start=rng.random(joined) < 0.3,
        kind=np.full(joined, int(EdgeKind.USER)),
    )
    threads = tuple(Lane(kind="cpu", name=name) for name in lanes)
    return TaskGraph(tasks=tasks, edges=edges, lanes=threads, names=("task",), source="made up")


GRAPHS: dict[str, Callable[[int], TaskGraph]] = {"random": random_graph, "launches": launches}


def timed_ms(work: Callable[[], Schedule]) -> tuple[float, Schedule]:
    """How long it takes, and what it gives."""
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1e3, result


def measure(name: str, tasks: int, engine: Engine, rounds: int) -> dict[str, Any]:
    """Replays with and without a known order, and a change of one random task after each of them."""
    graph = GRAPHS[name](tasks)
    schedule = simulate(graph, engine=engine)
    _ = graph.structure.position_of
    rng = np.random.default_rng(1)
    ordering: list[float] = []
    replay: list[float] = []
    again: list[float] = []
    told: list[float] = []
    shifted: list[float] = []
    for turn in range(rounds + 1):
        if engine == "numba":  # who runs in Python would be ordered by numba here
            del graph.structure.__dict__["order"]
            took_ms, _ = timed_ms(lambda: simulate(graph, engine=engine))
            ordering.append(took_ms)
        duration_us = graph.tasks.duration_us.copy()
        task = rng.integers(tasks, size=1)
        duration_us[task] *= rng.choice([0.5, 2.0])
        other = graph.with_times(duration_us=duration_us)
        took_ms, full = timed_ms(lambda other=other: simulate(other, engine=engine))
        replay.append(took_ms)
        ways = [(again, None), (told, task)]
        for kept, changed in ways if turn % 2 else reversed(ways):  # who comes second finds warm caches
            took_ms, partial = timed_ms(
                lambda other=other, changed=changed: resimulate(
                    schedule, other, changed=changed, engine=engine
                )
            )
            kept.append(took_ms)
            assert np.array_equal(full.end_us, partial.end_us)
        shifted.append(float(np.mean(full.start_us != schedule.start_us)))
        if turn == 0:  # what loads and compiles
            del ordering[:], replay[:], again[:], told[:], shifted[:]
    return {
        "case": f"{name}, {tasks} tasks, {engine}",
        "ordered_and_replayed_ms": _interval(ordering) if ordering else None,
        "replayed_ms": _interval(replay),
        "simulated_again_ms": _interval(again),
        "simulated_again_told_what_changed_ms": _interval(told),
        "worst_again_ms": max(again),
        "shifted_share": {"median": float(np.median(shifted)), "largest": max(shifted)},
    }


def _interval(values: Sequence[float]) -> dict[str, float]:
    found = median_interval(values)
    return {"median": found.value, "low": found.low, "high": found.high, "n": found.n}


def bars_of(row: dict[str, Any]) -> list[Bar]:
    """Of random graphs: how long a replay of a million tasks takes; the share of it that one change costs."""
    if not row["case"].startswith("random"):
        return []
    again, replay = row["simulated_again_ms"], row["replayed_ms"]
    share = Bar(
        name=f"one change of {row['case']}, over a replay in a known order",
        figure=again["median"] / replay["median"],
        limit=RESIMULATION_LIMIT,
        note=f"{again['median']:.3g} ms, worst {row['worst_again_ms']:.3g} ms, n={again['n']}",
    )
    ordered = row["ordered_and_replayed_ms"]
    if ordered is None or f" {MILLION} " not in row["case"]:
        return [share]
    whole = Bar(
        name=f"replay of {row['case']}, ordering included",
        figure=ordered["median"],
        limit=REPLAY_LIMIT_MS,
        unit="ms",
        note=f"[{ordered['low']:.1f}, {ordered['high']:.1f}] n={ordered['n']}",
    )
    return [whole, share]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Measure replays of task graphs that are made up.")
    options = parser.parse_args(arguments)
    claim_priority()
    cases: Sequence[tuple[int, Engine, int]] = [(50_000, "numba", 60), (50_000, "python", 10)]
    if not options.quick:
        cases = [*cases, (MILLION, "numba", 40), (MILLION, "python", 3)]
    rows: list[dict[str, Any]] = []
    for tasks, engine, rounds in cases:
        for name in GRAPHS:
            rows.append(measure(name, tasks, engine, rounds))
            row = rows[-1]
            print(
                f"{row['case']:<32} replay {row['replayed_ms']['median']:.4g} ms,"
                f" one change {row['simulated_again_ms']['median']:.4g} ms"
                f" (told which, {row['simulated_again_told_what_changed_ms']['median']:.4g} ms),"
                f" which shifts {row['shifted_share']['median']:.3%}"
                f" (at most {row['shifted_share']['largest']:.1%})",
                flush=True,
            )
    return command.finish("task_graphs", options, rows, [bar for row in rows for bar in bars_of(row)])


if __name__ == "__main__":
    sys.exit(main())

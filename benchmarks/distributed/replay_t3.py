"""Eight recorded ranks of a recommender, replayed together: with clocks as they were and as they are aligned.

Beside it what a replay without alignment gives once clocks are off, and what one gives in which collectives
wait for nobody (coarse communication, as Daydream's): with recorded durations, which hold all waiting and so
repeat the recording, and with those of sizes and a bandwidth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from daceml.profiling.kineto import read_traces
from daceml.simulation.distributed.clocks.alignment import align, unaligned
from daceml.simulation.distributed.global_graph import coarse_graph, global_graph
from daceml.simulation.distributed.matching import MatchedRun, matched
from daceml.simulation.distributed.rank_lanes import task_ranks
from daceml.simulation.distributed.rank_run import rank_run
from daceml.simulation.distributed.replay import RunReplay, replayed
from daceml.simulation.distributed.waits import separated
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind

T3 = "traces/dlrm_8xV100"
RANK_ERROR = 0.005
MAKESPAN_ERROR = 0.01
INJECTED_US = 5_000.0
LATER_US = 2_000.0  # by which one rank begins later, for what each graph says of the others


def measured(folder: Path, *, quick: bool = False) -> tuple[list[dict[str, Any]], list[Bar]]:
    """All variants; they take less than a second, so that nothing is left out when `quick`."""
    del quick
    run = matched(rank_run(trace) for trace in read_traces(folder / T3))
    truth = replayed(global_graph(run, align(run.timings)))
    moved = _with_wrong_clocks(run, INJECTED_US)
    variants = {
        "aligned": global_graph(run, align(run.timings)),
        "coarse communication, durations as recorded": coarse_graph(run, align(run.timings)),
        "coarse communication, durations of size over bandwidth": _by_bandwidth(run),
        "clocks off by 5 ms, aligned": global_graph(moved, align(moved.timings)),
        "clocks off by 5 ms, not aligned": global_graph(moved, unaligned(len(run.ranks))),
    }
    rows: list[dict[str, Any]] = []
    for name, graph in variants.items():
        rows += _rows(name, replayed(graph), truth)
    late = max(truth.ranks, key=lambda rank: rank.critical_us).rank
    rows += [_one_rank_later(name, variants[name], late) for name in list(variants)[:2]]
    return rows, judged(rows)


def judged(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Every rank and the makespan, with aligned clocks; the other variants are printed beside."""
    found: list[Bar] = []
    variants = dict.fromkeys(row["variant"] for row in rows if "error" in row)
    worst = {variant: _worst(rows, variant) for variant in variants}
    whole = {row["variant"]: row["error"] for row in rows if row["rank"] is None}
    for variant in ("aligned", "clocks off by 5 ms, aligned"):
        ranks = [row for row in rows if row["variant"] == variant and row["rank"] is not None]
        note = f"waiting {sum(row['waiting_us'] for row in ranks) / 1e3:.1f} ms and communication"
        note += f" {sum(row['communication_us'] for row in ranks) / 1e3:.1f} ms of all ranks;"
        note += f" {_beside(worst, variant)}"
        found.append(
            Bar(
                name=f"T3, {variant}: worst rank off by",
                figure=abs(worst[variant]),
                limit=RANK_ERROR,
                note=note,
            )
        )
        found.append(
            Bar(
                name=f"T3, {variant}: makespan off by", figure=abs(whole[variant]), limit=MAKESPAN_ERROR,
                note=_beside(whole, variant),
            )
        )  # fmt: skip
    return found


def _worst(rows: Sequence[dict[str, Any]], variant: str) -> float:
    errors = [row["error"] for row in rows if row["variant"] == variant and row["rank"] is not None]
    return max(errors, key=abs)


def _beside(errors: dict[str, float], variant: str) -> str:
    return "; ".join(f"{other} {error:+.2%}" for other, error in errors.items() if other != variant)


def _rows(variant: str, seen: RunReplay, truth: RunReplay) -> list[dict[str, Any]]:
    """Of each rank and of all; what is compared with was recorded, and told by clocks that are right."""
    found: list[dict[str, Any]] = []
    for rank, true in zip(seen.ranks, truth.ranks, strict=True):
        predicted = (rank.predicted_us, rank.predicted_step_us)
        recorded = (true.recorded_us, true.recorded_step_us)
        errors = [p / r - 1 for p, r in zip(predicted, recorded, strict=True)]
        found.append(
            {
                "variant": variant,
                **dataclasses.asdict(rank),
                "recorded_us": true.recorded_us,
                "error": max(errors, key=abs),
            }
        )
    found.append(
        {
            "variant": variant,
            "rank": None,
            "recorded_us": truth.recorded_us,
            "predicted_us": seen.predicted_us,
            "error": seen.predicted_us / truth.recorded_us - 1,
            "network_critical_us": seen.network_critical_us,
        }
    )
    return found


def _with_wrong_clocks(run: MatchedRun, size_us: float) -> MatchedRun:
    """Every second rank's clock is off."""
    ranks = [
        dataclasses.replace(one, first_us=one.first_us + size_us * (column % 2))
        for column, one in enumerate(run.ranks)
    ]
    return MatchedRun(ranks=tuple(ranks), matches=run.matches, notes=run.notes)


def _by_bandwidth(run: MatchedRun) -> TaskGraph:
    """Each collective lasts its size over a bandwidth: the median of what the run itself reached."""
    alignment = align(run.timings)
    pure_us = separated(run.timings, alignment).pure_us
    sizes = np.array([match.size_bytes for match in run.matches])
    bytes_per_us = float(np.median(sizes[pure_us > 0] / pure_us[pure_us > 0]))
    graph = coarse_graph(run, alignment)
    duration_us = graph.tasks.duration_us.copy()
    first = np.cumsum([0, *(len(one.graph) for one in run.ranks)])
    for match in run.matches:
        for column, call in match.members:
            task = first[column] + run.ranks[column].communications[call].task
            duration_us[task] = match.size_bytes / bytes_per_us
    return graph.with_times(duration_us=duration_us)


def _one_rank_later(variant: str, graph: TaskGraph, late: int) -> dict[str, Any]:
    """By how much other ranks end later when one begins later for whom they wait."""
    before = replayed(graph)
    threads = (task_ranks(graph) == late) & (graph.tasks.kind == TaskKind.CALL)
    gap_us = graph.tasks.gap_us.copy()
    gap_us[np.flatnonzero(threads)[0]] += LATER_US
    after = replayed(graph.with_times(gap_us=gap_us))
    others = [
        new.predicted_us - old.predicted_us
        for new, old in zip(after.ranks, before.ranks, strict=True)
        if new.rank != late
    ]
    return {
        "variant": f"{variant}; rank {late} begins {LATER_US / 1e3:g} ms later",
        "rank": late,
        "others_later_us": float(np.mean(others)),
        "makespan_later_us": after.predicted_us - before.predicted_us,
    }

"""A recorded run of several ranks, replayed, beside the same steps without the profiler."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from daceml.profiling.kineto import read_traces
from daceml.profiling.trace import Trace
from daceml.runtime.intervals import median_interval
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.distributed.alignment import align
from daceml.simulation.distributed.global_graph import global_graph
from daceml.simulation.distributed.matching import matched
from daceml.simulation.distributed.rank_lanes import task_ranks
from daceml.simulation.distributed.rank_run import rank_run
from daceml.simulation.distributed.replay import RunReplay, replayed

ERROR = 0.05


def replay_row(folders: Sequence[Path]) -> dict[str, Any]:
    """What the global graphs of recordings give, one after the other: medians over recordings.

    Each is compared with the steps without a profiler around it, since a machine changes in between. The
    run's own interval is that of all of them.
    """
    rows = [_one(read_traces(sorted(folder.glob("run_rank*.json.gz")))) for folder in folders]
    plain = median_interval([us for row in rows for us in row.pop("unprofiled_us")])
    middle = {key: median(row[key] for row in rows) for key in rows[0]}
    return {
        **middle,
        "errors": [row["error"] for row in rows],
        "interval": max(plain.high / plain.value - 1, 1 - plain.low / plain.value),
        "steps": plain.n,
    }


def _one(traces: Sequence[Trace]) -> dict[str, Any]:
    run = matched(rank_run(trace) for trace in traces)
    seen = replayed(global_graph(run, align(run.timings)))
    plain = [us for trace in traces for us in _told(trace)["unprofiled_us"]]
    profiled_us = median(us for trace in traces for us in _told(trace)["profiled_us"])
    predicted_us, plain_us = median(_steps_us(seen)), median(plain)
    return {
        "ranks": len(traces),
        "predicted_us": predicted_us,
        "measured_us": plain_us,
        "unprofiled_us": plain,
        "error": predicted_us / plain_us - 1,
        "profiled_error": predicted_us / profiled_us - 1,
        "inflation": profiled_us / plain_us,
        "waiting_us": median(rank.waiting_us for rank in seen.ranks),
        "communication_us": median(rank.communication_us for rank in seen.ranks),
        "collectives": len(run.matches),
    }


def _told(trace: Trace) -> dict[str, Any]:
    header: Any = trace.header["daceml"]
    return header["times"]


def _steps_us(seen: RunReplay) -> Sequence[float]:
    """Each step of each rank, as its loop sees it."""
    of_rank = task_ranks(seen.schedule.graph)
    found: list[float] = []
    for rank in seen.ranks:
        start_us = np.where(of_rank == rank.rank, seen.schedule.start_us, np.nan)
        found += step_times(dataclasses.replace(seen.schedule, start_us=start_us)).loop_us.tolist()
    return found

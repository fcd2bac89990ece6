"""A recorded run of several ranks: replayed beside steps without the profiler, and as a step to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from daceml.interval import median_interval
from daceml.profiling.kineto import read_traces
from daceml.profiling.trace import Trace
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.distributed.rank_lanes import task_ranks
from daceml.simulation.distributed.recorded_run import RecordedRun
from daceml.simulation.distributed.replay import RunReplay
from daceml.simulation.distributed.strategy.recorded_step import SentGradients, recorded_step
from daceml.simulation.distributed.strategy.synchronization import Synchronization
from daceml.simulation.distributed.strategy.training_step import TrainingStep
from daceml.simulation.network.measured import MeasuredCollective

ERROR = 0.05


def recorded_runs(folders: Sequence[Path]) -> list[RecordedRun]:
    """Of each folder all `run_rank*.json.gz`."""
    return [RecordedRun.of(read_traces(sorted(folder.glob("run_rank*.json.gz")))) for folder in folders]


def typical_step(runs: Sequence[RecordedRun], table: MeasuredCollective) -> TrainingStep:
    """The step that the middle one of some recordings tells, with a table of all-reduces."""
    steps = [
        recorded_step(
            run.run,
            run.alignment,
            SentGradients.of(run.traces[0].header),
            synchronization=Synchronization.measured(table),
        )
        for run in runs
    ]
    return sorted(steps, key=lambda one: one.typical_us)[len(steps) // 2].step


def replay_row(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """What the global graphs of recordings give, one after the other: medians over recordings.

    Each is compared with the steps without a profiler around it, since a machine changes in between. The
    run's own interval is that of all of them.
    """
    rows = [_one(run) for run in runs]
    plain = median_interval([us for row in rows for us in row.pop("unprofiled_us")])
    middle = {key: median(row[key] for row in rows) for key in rows[0]}
    return {
        **middle,
        "errors": [row["error"] for row in rows],
        "interval": max(plain.high / plain.value - 1, 1 - plain.low / plain.value),
        "steps": plain.n,
    }


def _one(run: RecordedRun) -> dict[str, Any]:
    seen, traces = run.replay, run.traces
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
        "collectives": len(run.run.matches),
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

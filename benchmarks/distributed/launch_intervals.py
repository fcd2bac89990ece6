"""How often a busy thread launches a kernel, in recorded training steps on A100: what a host costs there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daceml.profiling.kineto import read_trace
from daceml.simulation import TaskGraph, build

TRACES = ("traces/dlrm_a100", "traces/graphs_16xA100")
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "hipLaunchKernel")
FEWEST = 200
"""Launches of a thread; what launches fewer is no part of a step's forward or backward."""
IDLE_US = 1000.0
"""An interval of this length or more is no work on a call: the thread waits, or a step begins."""


def launch_interval_us(folder: Path) -> float:
    """Microseconds between two launches, the mean over all threads that launch, of both traces."""
    found = [
        intervals_us(build(read_trace(path)))
        for name in TRACES
        for path in sorted((folder / name).glob("*.json.gz"))
    ]
    return float(np.mean(np.concatenate(found)))


def intervals_us(graph: TaskGraph) -> NDArray[np.float64]:
    """Between the starts of launches that follow each other on a thread, idle ones left out."""
    launch = graph.where_name(lambda name: name.startswith(LAUNCHES))
    found: list[NDArray[np.float64]] = []
    for lane, one in enumerate(graph.lanes):
        members = graph.lane_members(lane)
        starts_us = np.sort(graph.tasks.recorded_us[members[launch[members]]])
        if one.kind == "cpu" and len(starts_us) >= FEWEST:
            between_us = np.diff(starts_us)
            found.append(between_us[(between_us > 0) & (between_us < IDLE_US)])
    return np.concatenate(found) if found else np.zeros(0)

"""Ranks that wait for each other in collectives, and one that is slower."""

from __future__ import annotations

from daceml.simulation.distributed.matching import MatchedRun
from daceml.simulation.distributed.rank_lanes import task_ranks
from daceml.simulation.graph import TaskGraph
from tests.support.recorded_ranks import COMMUNICATE, RankRecording, run_of


def run() -> MatchedRun:
    """Rank 0 computes for 50 us, rank 1 for 90; then both reduce, which takes 20, and compute again."""
    ranks: list[RankRecording] = []
    for rank, lasts in ((0, 50), (1, 90)):
        recording = RankRecording(rank)
        recording.annotation("ProfilerStep#0", 0, 12)
        recording.call("cudaLaunchKernel", 0, 2, ("gemm", COMMUNICATE, 10, lasts))
        recording.collective("nccl:all_reduce", 4, 10 + lasts, 110 - lasts)
        recording.call("cudaLaunchKernel", 8, 2, ("norm", COMMUNICATE, 120, 5))
        ranks.append(recording)
    return run_of(*ranks)


def slower(graph: TaskGraph, name: str, rank: int, duration_us: float) -> TaskGraph:
    """The graph with another duration of the tasks of this name on one rank."""
    changed = graph.tasks.duration_us.copy()
    changed[graph.where_name(lambda known: known == name) & (task_ranks(graph) == rank)] = duration_us
    return graph.with_times(duration_us=changed)


def two_groups() -> MatchedRun:
    """Four ranks: 0 and 1 reduce, and so do 2 and 3."""
    ranks: list[RankRecording] = []
    for rank in range(4):
        recording = RankRecording(rank, world=4)
        name, members = ("left", "[0, 1]") if rank < 2 else ("right", "[2, 3]")
        group = {"Process Group Name": name, "Process Group Ranks": members}
        recording.collective("nccl:all_reduce", 1, 10, 50, **group)
        ranks.append(recording)
    return run_of(*ranks)

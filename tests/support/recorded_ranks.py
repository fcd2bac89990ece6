"""Traces of several ranks, written by hand: what a profiler would have recorded on each; microseconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from daceml.simulation.distributed.clocks.timings import Timings
from daceml.simulation.distributed.matching import MatchedRun, matched
from daceml.simulation.distributed.rank_run import rank_run
from tests.support.recorded_calls import MAIN, Recording

NCCL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)"
COMPUTE, COMMUNICATE = 7, 20  # streams


class RankRecording(Recording):
    """What one rank did on one GPU, or on a CPU."""

    def __init__(self, rank: int, world: int = 2) -> None:
        super().__init__()
        self.rank, self.world = rank, world

    def gemm(self, launched: float, start: float, lasts: float) -> None:
        """A kernel that computes."""
        self.call("cudaLaunchKernel", launched, 2, ("gemm", COMPUTE, start, lasts))

    def collective(
        self, name: str, launched: float, start: float, lasts: float, elements: int = 1000, **facts: Any
    ) -> None:
        """A kernel of NCCL, its launch, and the annotation around that."""
        shapes = {"Input Dims": [[elements]], "Input type": ["float"], **facts}
        self._add("user_annotation", name, MAIN, launched - 1, 4, **shapes)
        self.correlation += 1
        self._add("cuda_runtime", "cudaLaunchKernel", MAIN, launched, 2, correlation=self.correlation)
        self.device(NCCL, COMMUNICATE, start, lasts, correlation=self.correlation, grid=[8, 1, 1])

    def gloo(
        self, kind: str, asked: float, start: float, lasts: float, elements: int = 1000, thread: int = 200
    ) -> None:
        """Work of a process group of the CPU, and the operator that asked for it."""
        shapes = {"Input Dims": [[elements]], "Input type": ["float"]}
        self.operator(f"c10d::{kind.replace('_', '')}_", asked, 2)
        self._add("user_annotation", f"gloo:{kind}", thread, start, lasts, **shapes)

    def trace(self, **header: Any) -> Trace:
        """As the reader understands it."""
        known = {"rank": self.rank, "world_size": self.world, "backend": "nccl"}
        devices = [{"id": 0, "numSms": 80}]
        document = {"distributedInfo": known, "deviceProperties": devices, **header}
        return trace_of(json.dumps({**document, "traceEvents": self.events}).encode(), f"rank{self.rank}")


def run_of(*ranks: RankRecording, **header: Any) -> MatchedRun:
    """What these ranks communicated with each other."""
    return matched(rank_run(rank.trace(**header)) for rank in ranks)


def timings_of(
    start_us: Sequence[Sequence[float]],
    end_us: Sequence[Sequence[float]],
    *,
    joint: bool = True,
    senders: Sequence[int] | None = None,
) -> Timings:
    """From starts and ends of each communication, one column a rank; NaN for who is no member."""
    count = len(start_us)
    return Timings(
        start_us=np.array(start_us, float),
        end_us=np.array(end_us, float),
        joint=np.full(count, joint),
        sender=np.array(senders if senders is not None else [-1] * count),
        family=np.zeros(count, np.int64),
    )

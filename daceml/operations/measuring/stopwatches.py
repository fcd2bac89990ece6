"""How long work takes: by the wall clock, between two CUDA events, and as a captured CUDA graph.

Each stopwatch takes work once, prepares what it needs, and hands back what runs it and says the seconds.
Chains and slopes are the same for all three.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

Work = Callable[[], object]


def nothing() -> None:
    """Is done before work that needs no preparation."""


class Stopwatch(Protocol):
    """Runs work and says how long it took."""

    def scope(self) -> AbstractContextManager[Any]:
        """Where operands and graphs of autograd are made."""
        ...

    def prepared(self, work: Work, before: Work = nothing) -> Callable[[], float]:
        """What runs `before`, and then `work`, of which it says the seconds."""
        ...


@dataclass(frozen=True, kw_only=True)
class WallClock:
    """For processors: what is called has been done when the call returns."""

    clock_s: Callable[[], float] = perf_counter

    def scope(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def prepared(self, work: Work, before: Work = nothing) -> Callable[[], float]:
        clock_s = self.clock_s

        def timed() -> float:
            before()
            start = clock_s()
            work()
            return clock_s() - start

        return timed


@dataclass(frozen=True, kw_only=True)
class CudaEvents:
    """Eager calls on one stream, which does one after the other: the longer of host and device, per call.

    Attributes:
        cuda: the module `torch.cuda`.
        stream: one of its streams, not the default one, which no graph captures.
    """

    cuda: Any
    stream: Any

    def scope(self) -> AbstractContextManager[Any]:
        return self.cuda.stream(self.stream)

    def prepared(self, work: Work, before: Work = nothing) -> Callable[[], float]:
        def timed() -> float:
            with self.scope():
                before()
                start = self.cuda.Event(enable_timing=True)
                end = self.cuda.Event(enable_timing=True)
                start.record(self.stream)
                work()
                end.record(self.stream)
                end.synchronize()
                return start.elapsed_time(end) / 1e3

        return timed


@dataclass(frozen=True, kw_only=True)
class CudaGraph:
    """The work captured once and replayed: the device's time, and the gap between two nodes.

    Attributes:
        events: what times the replay.
    """

    events: CudaEvents

    def scope(self) -> AbstractContextManager[Any]:
        return self.events.scope()

    def prepared(self, work: Work, before: Work = nothing) -> Callable[[], float]:
        cuda, stream = self.events.cuda, self.events.stream
        with self.scope():
            work()  # libraries choose their kernels and take their workspaces, which a capture forbids
        stream.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            work()
        return self.events.prepared(graph.replay, before)

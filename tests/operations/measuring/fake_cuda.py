"""As much of torch.cuda as stopwatches need, with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

LAUNCH_S, NODE_S = 10e-6, 1e-6


class Cuda:
    """Kernels take what they say; each costs a launch when eager and a node's gap in a graph."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.captured: list[float] | None = None
        self.current: Any = None
        self.log: list[str] = []

    def kernel(self, seconds: float) -> None:
        if self.captured is not None:
            self.captured.append(seconds)
        else:
            self.log.append("kernel")
            self.now_s += LAUNCH_S + seconds

    def Stream(self) -> Any:
        return SimpleNamespace(synchronize=lambda: self.log.append("synchronize"))

    @contextmanager
    def stream(self, stream: Any) -> Generator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def Event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        event = SimpleNamespace(at_s=0.0, synchronize=lambda: None)

        def record(stream: Any) -> None:
            assert stream is self.current, "events on the stream of the work"
            event.at_s = self.now_s

        event.record = record
        event.elapsed_time = lambda end: (end.at_s - event.at_s) * 1e3
        return event

    def CUDAGraph(self) -> Any:
        graph = SimpleNamespace(kernels=[])

        def replay() -> None:
            self.log.append("replay")
            self.now_s += LAUNCH_S + sum(NODE_S + one for one in graph.kernels)

        graph.replay = replay
        return graph

    @contextmanager
    def graph(self, graph: Any, *, stream: Any) -> Generator[None]:
        assert stream is not None
        self.captured = graph.kernels
        yield
        self.captured = None

    def chain(self, stopwatch: Any, seconds: float, before: Callable[[], object] = lambda: None):
        """Copies of a kernel, as chains make them."""
        prepared: dict[int, Callable[[], float]] = {}

        def timed(copies: int) -> float:
            if copies not in prepared:
                prepared[copies] = stopwatch.prepared(
                    lambda: [self.kernel(seconds) for _ in range(copies)], before
                )
            return prepared[copies]()

        return timed

"""Traces written by hand: what a profiler would have recorded of some calls and kernels; microseconds."""

from __future__ import annotations

import json
from typing import Any

from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from daceml.simulation.building.build import Options, build
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import TaskGraph

MAIN = 100
SPELT = {"sequence": "Sequence number"}


class Recording:
    """Events one after the other; each call has a correlation of its own, which is returned."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.correlation = 0

    def call(
        self,
        name: str,
        at: float,
        lasts: float,
        *work: tuple[str, int, float, float],
        thread: int = MAIN,
        category: str = "cuda_runtime",
    ) -> int:
        """A call of the runtime and the work that it launched: (name, stream, start, duration) of each."""
        self.correlation += 1
        self._add(category, name, thread, at, lasts, correlation=self.correlation)
        for kernel, stream, start, duration in work:
            self.device(kernel, stream, start, duration, correlation=self.correlation)
        return self.correlation

    def device(self, name: str, stream: int, at: float, lasts: float, **more: Any) -> None:
        """Work of device 0."""
        category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        if name.startswith("Memset"):
            category = "gpu_memset"
        self._add(category, name, stream, at, lasts, process=0, device=0, stream=stream, **more)

    def operator(self, name: str, at: float, lasts: float, *, thread: int = MAIN, **more: Any) -> None:
        """An operator of the framework."""
        self._add("cpu_op", name, thread, at, lasts, **more)

    def annotation(self, name: str, at: float, lasts: float, *, thread: int = MAIN) -> None:
        """A range that the user or the framework named."""
        self._add("user_annotation", name, thread, at, lasts)

    def sync(self, name: str, correlation: int, at: float, lasts: float, **more: Any) -> None:
        """What newer profilers say of a call that waits."""
        facts = {"cuda_sync_kind": name, "correlation": correlation, "device": 0, **more}
        self._add("cuda_sync", name, -1, at, lasts, process=0, **facts)

    def _add(self, category: str, name: str, thread: int, at: float, lasts: float, **more: Any) -> None:
        process = more.pop("process", MAIN)
        args = {SPELT.get(key, key): value for key, value in more.items()}
        place = {"pid": process, "tid": thread, "ts": at, "dur": lasts}
        self.events.append({"ph": "X", "cat": category, "name": name, **place, "args": args})

    def trace(self, **header: Any) -> Trace:
        """As the reader understands it."""
        return trace_of(json.dumps({**header, "traceEvents": self.events}).encode(), "by hand")

    def graph(self, options: Options | None = None) -> TaskGraph:
        """The task graph."""
        return build(self.trace(), options)

    def replayed(self) -> Schedule:
        """The graph, simulated."""
        return simulate(self.graph())


def with_duration(graph: TaskGraph, name: str, duration_us: float) -> Schedule:
    """What happens where one task lasts as long as said."""
    changed = graph.tasks.duration_us.copy()
    changed[graph.where_name(lambda known: known == name)] = duration_us
    return simulate(graph.with_times(duration_us=changed))


def steps_of(correlation: int | None, *, count: int = 4) -> Recording:
    """Steps of 1000 us, each of one kernel and a wait for it."""
    run = Recording()
    for number in range(count):
        at = 1000.0 * number
        run.annotation(f"ProfilerStep#{number}", at, 1000)
        run.call("cudaLaunchKernel", at + 10, 5, ("gemm", 7, at + 20, 800))
        run.call("cudaStreamSynchronize", at + 30, 795)
    if correlation is not None:
        for event in run.events:
            if event["cat"] == "kernel" or event["name"] == "cudaLaunchKernel":
                event["args"]["correlation"] = correlation
    return run

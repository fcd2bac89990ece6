"""Recorded runs in a few words: operators with shapes, and the kernels that they launched on a device."""

from __future__ import annotations

import json
from typing import Any

from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace

THREAD, STREAM = 100, 7
_LAUNCH_US = 4.0  # from a launch to the start of its kernel
_CALL_US = 3.0
_LAUNCH = {"grid": [1024, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}


class Run:
    """One step on one thread and one stream: each operator launches its kernels one after the other."""

    def __init__(self, device: str | None = "NVIDIA H100 80GB HBM3") -> None:
        self.events: list[dict[str, Any]] = []
        self.device = device
        self.at = self.free = 0.0
        self.correlation = 0

    def operator(
        self,
        name: str,
        *kernels: tuple[str, float],
        dims: list[Any] | None = None,
        types: list[str] | None = None,
        values: list[str] | None = None,
        linked: bool = True,
        **facts: Any,
    ) -> Run:
        """An operator of these arguments, and the names and durations of what it launched."""
        begin = self.at
        details: dict[str, Any] = {}
        if dims is not None:
            details = {"Input Dims": dims, "Input type": types or ["float"] * len(dims)}
            details["Concrete Inputs"] = values or [""] * len(dims)
        self.at += 1.0
        for kernel, lasts in kernels:
            self.correlation += 1
            self._add("cuda_runtime", "cudaLaunchKernel", THREAD, self.at, _CALL_US, self.correlation)
            begun = max(self.at + _LAUNCH_US, self.free)
            self.free = begun + lasts
            category = {"Memc": "gpu_memcpy", "Mems": "gpu_memset"}.get(kernel[:4], "kernel")
            launch = {
                "grid": [1024, 1, 1],
                "block": [256, 1, 1],
                "registers per thread": 32,
                "shared memory": 0,
            }
            more = {**(launch if category == "kernel" else {}), **facts}
            self._add(
                category, kernel, STREAM, begun, lasts, self.correlation if linked else 0, pid=0, device=0,
                stream=STREAM, **more,
            )  # fmt: skip
            self.at += _CALL_US + 1.0
        self._add("cpu_op", name, THREAD, begin, self.at - begin, **details)
        self.at += 1.0
        return self

    def wait(self) -> Run:
        """The thread waits until the device has done everything."""
        self.correlation += 1
        end = max(self.at + 1.0, self.free + 1.0)
        self._add("cuda_runtime", "cudaDeviceSynchronize", THREAD, self.at, end - self.at, self.correlation)
        self.at = end + 1.0
        return self

    def trace(self) -> Trace:
        """As the reader understands it."""
        measured = {"times": {"inflation": 1.0}}  # recording cost nothing
        return trace_of(json.dumps(self.document(daceml=measured)).encode(), "a run")

    def document(self, **header: Any) -> dict[str, Any]:
        """What a profiler would have written, and what a recorder added."""
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": THREAD}
        events = [{**step, "ts": -1.0, "dur": self.at + 1.0, "args": {}}, *self.events]
        devices = [] if self.device is None else [{"id": 0, "name": self.device}]
        return {"deviceProperties": devices, "traceEvents": events, **header}

    def _add(
        self, category: str, name: str, thread: int, at: float, lasts: float, correlation: int = 0, *,
        pid: int = 1, **details: Any,
    ) -> None:  # fmt: skip
        args = {**details, **({"correlation": correlation} if correlation else {})}
        self.events.append(
            {
                "ph": "X", "cat": category, "name": name, "pid": pid, "tid": thread, "ts": at, "dur": lasts,
                "args": args,
            }
        )  # fmt: skip


def square(size: int) -> list[Any]:
    """Dimensions of two square matrices."""
    return [[size, size], [size, size]]


GEMM, ADD = "sm90_xmma_gemm_f32f32_f32f32_f32_nn_n", "void at::native::vectorized_elementwise_kernel<4, add>"

"""Traces made by hand, as PyTorch's profiler writes them: single events, and a whole small training run."""

from __future__ import annotations

import gzip
import json
from typing import Any

Raw = dict[str, Any]

PROCESS, MAIN, BACKWARD = 100, 101, 102
CLOCK_US = 1_700_000_000_000_000  # of the first event


def complete(
    category: str, name: str, start_us: float, duration_us: float, *, pid: Any, tid: Any, **args: Any
) -> Raw:
    """An event with a duration; `start_us` from the first one."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": CLOCK_US + start_us,
        "dur": duration_us,
        "args": args,
    }


def operator(name: str, start_us: float, duration_us: float, *, thread: Any = MAIN, **args: Any) -> Raw:
    return complete("cpu_op", name, start_us, duration_us, pid=PROCESS, tid=thread, **args)


def annotation(name: str, start_us: float, duration_us: float) -> Raw:
    return complete("user_annotation", name, start_us, duration_us, pid=PROCESS, tid=MAIN)


def call(
    name: str, start_us: float, duration_us: float, correlation: int | None, *, thread: Any = MAIN
) -> Raw:
    args = {} if correlation is None else {"correlation": correlation}
    return complete("cuda_runtime", name, start_us, duration_us, pid=PROCESS, tid=thread, cbid=211, **args)


def kernel(
    name: str,
    start_us: float,
    duration_us: float,
    correlation: int | None,
    *,
    device: int = 0,
    stream: int = 7,
) -> Raw:
    args: dict[str, Any] = {} if correlation is None else {"correlation": correlation}
    args |= {"device": device, "stream": stream, "grid": [80, 1, 1], "block": [256, 1, 1]}
    return complete("kernel", name, start_us, duration_us, pid=device, tid=stream, **args)


def copy(name: str, start_us: float, duration_us: float, correlation: int, *, size_bytes: int) -> Raw:
    args = {"correlation": correlation, "device": 0, "stream": 7, "bytes": size_bytes}
    return complete("gpu_memcpy", name, start_us, duration_us, pid=0, tid=7, **args)


def flow(phase: str, category: str, label: Any, at_us: float, *, pid: Any = PROCESS, tid: Any = MAIN) -> Raw:
    """One end of an arrow: phase "s" where it starts, "f" where it ends."""
    place = {"pid": pid, "tid": tid, "ts": CLOCK_US + at_us}
    return {"ph": phase, "cat": category, "name": category, "id": label, "bp": "e", **place}


def memory(at_us: float, size_bytes: int, **args: Any) -> Raw:
    place = {"pid": PROCESS, "tid": MAIN, "ts": CLOCK_US + at_us, "s": "t"}
    said = {"Bytes": size_bytes, "Device Type": 1, "Device Id": 0, "Addr": 4096, **args}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", **place, "args": said}


def document(*events: Any, **header: Any) -> Raw:
    """A file of events."""
    return {"schemaVersion": 1, **header, "traceEvents": list(events)}


def as_bytes(content: Any, *, zipped: bool = False) -> bytes:
    """What stands on disk."""
    text = json.dumps(content).encode()
    return gzip.compress(text, mtime=0) if zipped else text


def training_run(steps: int = 3, step_us: float = 1000) -> Raw:
    """Steps of one convolution with its backward, an all-reduce on a stream of its own and an optimizer."""
    events: list[Raw] = [event for step in range(steps) for event in _step(step, step * step_us, step_us)]
    return document(
        *events,
        deviceProperties=[{"id": 0, "name": "Tesla V100", "computeMajor": 7, "numSms": 80}],
        distributedInfo={"backend": "nccl", "rank": 1, "world_size": 4},
        displayTimeUnit="ms",
    )


def _step(step: int, at: float, step_us: float) -> list[Raw]:
    number = 20 * step + 1
    batch = {"Input Dims": [[32, 3, 224, 224]], "Input type": ["float"]}
    engine = "autograd::engine::evaluate_function: ConvolutionBackward0"
    on_engine = {"tid": BACKWARD}
    return [
        {"ph": "M", "name": "process_name", "pid": PROCESS, "tid": 0, "args": {"name": "python"}},
        annotation(f"ProfilerStep#{step}", at, step_us - 10),
        complete("python_function", "nn.Module: Conv2d_0", at + 10, 80, pid=PROCESS, tid=MAIN),
        call("cudaMemcpyAsync", at + 2, 5, number),
        copy("Memcpy HtoD (Pageable -> Device)", at + 4, 20, number, size_bytes=602_112),
        operator("aten::conv2d", at + 20, 60, **{"External id": number, "Sequence number": step}, **batch),
        call("cudaLaunchKernel", at + 30, 8, number + 1),
        kernel("implicit_gemm", at + 45, 200, number + 1),
        memory(at + 25, 4096, **{"Total Allocated": 4096, "Total Reserved": 1 << 21}),
        operator(
            engine, at + 150, 90, thread=BACKWARD, **{"External id": number + 1, "Sequence number": step}
        ),
        call("cudaLaunchKernel", at + 160, 8, number + 2, thread=BACKWARD),
        kernel("implicit_gemm_wgrad", at + 245, 300, number + 2),
        call("cudaEventRecord", at + 180, 2, number + 3, thread=BACKWARD),
        call("cudaStreamWaitEvent", at + 184, 2, number + 4, thread=BACKWARD),
        complete("cuda_sync", "Stream Wait Event", at + 184, 1, pid=0, tid=20, **_wait(number)),
        call("cudaLaunchKernel", at + 190, 8, number + 5, thread=BACKWARD),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float", at + 545, 150, number + 5, stream=20),
        annotation("Optimizer.step#SGD.step", at + 300, 100),
        call("cudaLaunchKernel", at + 320, 8, number + 6),
        kernel("multi_tensor_apply_kernel", at + 700, 60, number + 6),
        call("cudaDeviceSynchronize", at + 450, 320, number + 7),
        memory(at + 780, -4096, **{"Total Allocated": 0, "Total Reserved": 1 << 21}),
        flow("s", "fwdbwd", step + 1, at + 20),
        flow("f", "fwdbwd", step + 1, at + 150, **on_engine),
        flow("s", "ac2g", number + 1, at + 30),
        flow("f", "ac2g", number + 1, at + 45, pid=0, tid=7),
    ]


def _wait(number: int) -> dict[str, Any]:
    waits = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": number + 3, "wait_on_cuda_event_id": 1}
    kind = {"cuda_sync_kind": "Stream Wait Event"}
    return {**kind, **waits, "stream": 20, "correlation": number + 4, "device": 0}

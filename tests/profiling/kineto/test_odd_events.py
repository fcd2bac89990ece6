"""Events that no profiler should write: mended or left out, and always told."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.trace_examples import as_bytes, call, complete, document, kernel, operator
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import UNKNOWN, EventKind, Trace
from tests.support.golden import golden

GOOD = operator("good", 0, 10)


def read(*events: Any) -> Trace:
    return trace_of(as_bytes(document(GOOD, *events)), "run.json")


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"ts": None}, "start"),
        ({"ts": "12"}, "start"),
        ({"ts": True}, "start"),
        ({"ts": [1]}, "start"),
        ({"ts": float("nan")}, "start"),
        ({"ts": 1e300}, "start"),
        ({"ts": 10**30}, "start"),
        ({"ts": 0}, "day"),
        ({"dur": -0.001}, "duration"),
        ({"dur": None}, "duration"),
        ({"dur": float("nan")}, "duration"),
        ({"dur": {}}, "duration"),
        ({"dur": float("inf")}, "day"),
        ({"dur": 10**400}, "day"),
        ({"cat": "sausage"}, "'sausage'"),
        ({"cat": ["kernel"]}, "['kernel']"),
    ],
)
def test_what_has_no_place_in_time_is_left_out(change: dict[str, Any], fact: str):
    recorded = read(operator("also good", 20, 10), {**operator("bad", 5, 1), **change})
    assert [recorded.name_of(i) for i in range(len(recorded.events))] == ["good", "also good"]
    assert recorded.notes == (golden(),)
    assert fact in recorded.notes[0] and "1" in recorded.notes[0]


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"name": ["a"]}, "name"),
        ({"args": "text"}, "arguments"),
        ({"tid": None}, "thread"),
        ({"pid": {}}, "thread"),
    ],
)
def test_what_can_be_mended_is_kept(change: dict[str, Any], fact: str):
    recorded = read({**operator("odd", 20, 10), **change})
    assert recorded.events.start_us.tolist() == [0, 20]
    assert recorded.notes == (golden(),)
    assert fact in recorded.notes[0] and "1" in recorded.notes[0]


@pytest.mark.parametrize("value", [None, -1, 0, 1.5, 2**63, 10**30, "x", [1], {}, True])
def test_a_number_that_links_nothing_is_unknown(value: Any):
    odd = complete("cuda_runtime", "cudaLaunchKernel", 2, 3, pid=1, tid=1, correlation=value)
    recorded = read(odd)
    assert recorded.events.correlation.tolist() == [UNKNOWN, UNKNOWN]


def test_a_number_as_text_links():
    recorded = read(complete("cuda_runtime", "cudaLaunchKernel", 2, 3, pid=1, tid=1, correlation="12"))
    assert recorded.events.correlation[1] == 12


def test_work_of_a_device_that_is_not_named():
    odd = {
        **kernel("gemm", 2, 3, 4),
        "pid": "CUDA",
        "args": {"device": 10**30, "stream": "seven"},
        "tid": None,
    }
    recorded = read(odd)
    (lane,) = [lane for lane in recorded.lanes if lane.kind == "stream"]
    assert (lane.device, lane.process, lane.thread) == (None, "?", "?")
    assert recorded.notes == (golden(),)
    assert "stream" in recorded.notes[0] and "1" in recorded.notes[0]


def test_work_that_stands_there_twice_happened_once():
    launch, gemm = call("cudaLaunchKernel", 2, 3, 4), kernel("gemm", 8, 3, 4)
    recorded = read(launch, gemm, gemm, launch, GOOD)
    assert [recorded.name_of(i) for i in recorded.events.of(EventKind.CALL, EventKind.KERNEL)] == [
        "cudaLaunchKernel",
        "gemm",
    ]
    assert recorded.notes == (golden(),)
    assert "2" in recorded.notes[0]


def test_one_correlation_may_launch_many_kernels():
    launch = call("cudaGraphLaunch", 2, 3, 4)
    recorded = read(launch, kernel("a", 8, 3, 4), kernel("a", 11, 3, 4), kernel("a", 8, 3, 4, stream=8))
    assert len(recorded.events.of(EventKind.KERNEL)) == 3


def test_threads_of_two_processes_with_one_number_are_told_apart():
    there = [complete("cpu_op", "a", 0, 1, pid=pid, tid=5) for pid in (1, 2)]
    recorded = trace_of(as_bytes(document(*there)), "run.json")
    assert [lane.name for lane in recorded.lanes] == ["thread 5 of 1", "thread 5 of 2"]


def test_waits_for_no_stream_share_a_lane():
    waits = [
        complete("cuda_sync", "Event Sync", at, 1, pid=0, tid=-1, device=0, stream=stream)
        for at, stream in ((1, -1), (5, 2**32 - 1))
    ]
    assert [lane.name for lane in read(*waits).lanes] == ["thread 101", "gpu 0 stream -1"]

"""Events that no profiler should write: mended or left out, and always told."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.trace_examples import as_bytes, call, complete, document, kernel, operator
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import UNKNOWN, EventKind, Trace

GOOD = operator("good", 0, 10)


def read(*events: Any) -> Trace:
    return trace_of(as_bytes(document(GOOD, *events)), "run.json")


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"ts": None}, "events without a start that is a number: 1"),
        ({"ts": "12"}, "events without a start that is a number: 1"),
        ({"ts": True}, "events without a start that is a number: 1"),
        ({"ts": [1]}, "events without a start that is a number: 1"),
        ({"ts": float("nan")}, "events without a start that is a number: 1"),
        ({"ts": 1e300}, "events without a start that is a number: 1"),
        ({"ts": 10**30}, "events without a start that is a number: 1"),
        ({"ts": 0}, "events that start more than a day before or after the others: 1"),
        ({"dur": -0.001}, "events with a duration below zero: 1"),
        ({"dur": None}, "events without a duration that is a number: 1"),
        ({"dur": float("nan")}, "events without a duration that is a number: 1"),
        ({"dur": {}}, "events without a duration that is a number: 1"),
        ({"dur": float("inf")}, "events that last longer than a day: 1"),
        ({"dur": 10**400}, "events that last longer than a day: 1"),
        ({"cat": "sausage"}, "events of the unknown category 'sausage': 1"),
        ({"cat": ["kernel"]}, "events of the unknown category ['kernel']: 1"),
    ],
)
def test_what_has_no_place_in_time_is_left_out(change: dict[str, Any], note: str):
    recorded = read(operator("also good", 20, 10), {**operator("bad", 5, 1), **change})
    assert [recorded.name_of(i) for i in range(len(recorded.events))] == ["good", "also good"]
    assert recorded.notes == (f"left out: {note}",)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"name": ["a"]}, "events without a readable name: 1"),
        ({"args": "text"}, "events whose arguments are no object, and were ignored: 1"),
        ({"tid": None}, "events that do not say on which thread, device or stream: 1"),
        ({"pid": {}}, "events that do not say on which thread, device or stream: 1"),
    ],
)
def test_what_can_be_mended_is_kept(change: dict[str, Any], note: str):
    recorded = read({**operator("odd", 20, 10), **change})
    assert recorded.events.start_us.tolist() == [0, 20]
    assert recorded.notes == (note,)


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
    assert recorded.notes == ("events that do not say on which thread, device or stream: 1",)


def test_work_that_stands_there_twice_happened_once():
    launch, gemm = call("cudaLaunchKernel", 2, 3, 4), kernel("gemm", 8, 3, 4)
    recorded = read(launch, gemm, gemm, launch, GOOD)
    assert [recorded.name_of(i) for i in recorded.events.of(EventKind.CALL, EventKind.KERNEL)] == [
        "cudaLaunchKernel",
        "gemm",
    ]
    assert recorded.notes == ("left out: events that stand there twice: 2",)


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

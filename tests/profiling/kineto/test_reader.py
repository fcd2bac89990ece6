"""A whole small recording, from its bytes to its columns."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trace_examples import (
    BACKWARD,
    CLOCK_US,
    MAIN,
    PROCESS,
    annotation,
    as_bytes,
    call,
    complete,
    document,
    kernel,
    operator,
    training_run,
)
from daceml.errors import TraceFileError
from daceml.profiling.kineto import read_trace, trace_of
from daceml.profiling.trace import UNKNOWN, EventKind, Trace
from tests.support.golden import golden, raises


def trace(*events: object, **header: object) -> Trace:
    return trace_of(as_bytes(document(*events, **header)), "run.json")


def named(recorded: Trace, kind: EventKind) -> list[str]:
    return [recorded.name_of(int(event)) for event in recorded.events.of(kind)]


def test_a_launch_and_its_kernel():
    recorded = trace(kernel("gemm", 12, 30, 5), call("cudaLaunchKernel", 2, 4, 5), operator("aten::mm", 0, 9))
    events = recorded.events
    assert [recorded.name_of(i) for i in range(3)] == ["aten::mm", "cudaLaunchKernel", "gemm"]
    assert events.kind.tolist() == [EventKind.OPERATOR, EventKind.CALL, EventKind.KERNEL]
    assert events.start_us.tolist() == [0, 2, 12]
    assert events.end_us.tolist() == [9, 6, 42]
    assert events.correlation.tolist() == [UNKNOWN, 5, 5]
    assert [recorded.lanes[lane].name for lane in events.lane] == [
        "thread 101",
        "thread 101",
        "gpu 0 stream 7",
    ]
    assert events.details[2] == {"device": 0, "stream": 7, "grid": [80, 1, 1], "block": [256, 1, 1]}
    assert recorded.first_us == CLOCK_US
    assert recorded.notes == ()


def test_a_training_run_on_disk(tmp_path: Path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(as_bytes(training_run(steps=3), zipped=True))
    recorded = read_trace(path)
    assert recorded.source == str(path)
    assert named(recorded, EventKind.ANNOTATION) == [
        name for step in range(3) for name in (f"ProfilerStep#{step}", "Optimizer.step#SGD.step")
    ]
    assert len(recorded.events.of(EventKind.KERNEL)) == 12
    assert len(recorded.events.of(EventKind.SYNC)) == 3
    assert named(recorded, EventKind.PYTHON) == ["nn.Module: Conv2d_0"] * 3
    assert [lane.name for lane in recorded.lanes] == [
        f"thread {MAIN}",
        f"thread {BACKWARD}",
        "gpu 0 stream 7",
        "gpu 0 stream 20",
    ]
    assert (recorded.rank, recorded.world_size) == (1, 4)
    assert recorded.devices[0]["name"] == "Tesla V100"
    assert recorded.header["displayTimeUnit"] == "ms"
    assert recorded.memory.size_bytes.tolist() == [4096, -4096] * 3
    assert recorded.notes == ()


def test_the_order_of_a_file_tells_nothing():
    run = training_run()
    mixed = {**run, "traceEvents": random.Random(0).sample(run["traceEvents"], len(run["traceEvents"]))}
    one, other = (trace_of(as_bytes(content), "run.json") for content in (run, mixed))
    for column in ("kind", "lane", "start_us", "duration_us", "correlation", "external_id", "sequence"):
        np.testing.assert_array_equal(getattr(one.events, column), getattr(other.events, column))
    assert list(map(one.name_of, range(len(one.events)))) == list(
        map(other.name_of, range(len(other.events)))
    )
    assert one.lanes == other.lanes
    np.testing.assert_array_equal(one.gradient_pairs, other.gradient_pairs)


def test_events_that_start_together_stand_with_the_longest_first():
    recorded = trace(operator("inner", 5, 2), operator("outer", 5, 20), annotation("all", 0, 100))
    assert [recorded.name_of(i) for i in range(3)] == ["all", "outer", "inner"]


def test_the_oldest_spelling_gives_the_same_trace():
    def old(category: str, name: str, start: float, duration: float, tid: str, **args: object) -> dict:
        return complete(
            category, name, start, duration, pid=0 if "stream" in tid else PROCESS, tid=tid, **args
        )

    link = {"correlation": 5, "external id": 9}
    recorded = trace(
        old("Operator", "ProfilerStep#4", 0, 100, "101"),
        old("Operator", "aten::mm", 1, 20, "101", **{"External id": 9, "Input Dims": [[2, 2]]}),
        old("Runtime", "cudaLaunchKernel", 2, 4, "101", **link, **{"external ts": 1}),
        old("Kernel", "gemm", 12, 30, "stream 7", **link, device=0, stream=7),
        old("Memcpy", "Memcpy HtoD (Pageable -> Device)", 50, 3, "stream 7", correlation=6, bytes=64),
        old("Memset", "Memset (Device)", 55, 1, "stream 7", correlation=7),
        old("Trace", "PyTorch Profiler (0)", 0, 100, "PyTorch Profiler"),
    )
    assert recorded.events.kind.tolist() == [
        EventKind.ANNOTATION,
        EventKind.OPERATOR,
        EventKind.CALL,
        EventKind.KERNEL,
        EventKind.COPY,
        EventKind.MEMSET,
    ]
    assert recorded.events.external_id.tolist() == [UNKNOWN, 9, 9, 9, UNKNOWN, UNKNOWN]
    assert [lane.name for lane in recorded.lanes] == ["thread 101", "gpu 0 stream 7"]
    assert recorded.events.details[1] == {"Input Dims": [[2, 2]]}


def test_an_external_id_that_repeats_the_correlation_names_no_operator():
    launch = call("cudaLaunchKernel", 2, 4, 5)
    launch["args"]["External id"] = 5
    recorded = trace(operator("aten::mm", 0, 9, **{"External id": 5}), launch)
    assert recorded.events.external_id.tolist() == [5, UNKNOWN]
    assert recorded.notes == (golden(),)
    assert "external id" in recorded.notes[0] and "correlation" in recorded.notes[0]


def test_a_run_without_a_device_is_a_trace():
    recorded = trace(operator("aten::mm", 0, 9))
    assert len(recorded.events) == 1
    assert recorded.devices == ()


def test_the_base_time_moves_the_clock_alone():
    plain, based = (
        trace(operator("a", 3, 2), operator("b", 9, 2), **h) for h in ({}, {"baseTimeNanoseconds": 4000})
    )
    assert based.first_us == plain.first_us + 4
    np.testing.assert_array_equal(based.events.start_us, plain.events.start_us)


def test_nanoseconds_survive_the_clock_of_today():
    text = as_bytes(document(operator("a", 0, 2), operator("b", 1, 2)))
    text = text.replace(b"1700000000000000,", b"1700000000000000.047,")
    text = text.replace(b"1700000000000001,", b"1700000000000001.096,")
    assert trace_of(text, "run.json").events.start_us.tolist() == pytest.approx([0, 1.049], abs=1e-9)


def test_a_trace_without_a_usable_event_is_refused_with_every_reason():
    late = operator("aten::mm", 0, -9)
    with raises(TraceFileError, "run.json", "torch.profiler.profile(activities=[CPU, CUDA])") as caught:
        trace(late, late, 7)
    first, second = caught.value.why.splitlines()
    assert "duration" in first and "2" in first
    assert "objects" in second and "1" in second


def test_an_empty_trace_is_refused():
    with raises(TraceFileError, "run.json", "duration", "torch.profiler.profile(activities=[CPU, CUDA])"):
        trace()


def test_halves_of_characters_become_marks_and_whole_ones_stay():
    odd = {**operator("half \ud800, whole \U0001f600", 0, 1), "tid": "\udc00", "args": {"\ud83d": ["\ud83d"]}}
    recorded = trace(odd)
    assert recorded.name_of(0) == "half \ufffd, whole \U0001f600"
    assert recorded.lanes[0].name == "thread \ufffd"
    assert recorded.events.details[0] == {"\ufffd": ["\ufffd"]}

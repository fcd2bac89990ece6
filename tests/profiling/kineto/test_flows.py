"""Arrows stand in for numbers that events do not carry, and join operators with their backward."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.trace_examples import BACKWARD, as_bytes, call, document, flow, kernel, operator
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import UNKNOWN, EventKind, Trace


def read(*events: Any) -> Trace:
    return trace_of(as_bytes(document(*events)), "run.json")


def links(recorded: Trace) -> dict[str, int]:
    events = recorded.events
    chosen = events.of(EventKind.CALL, EventKind.KERNEL)
    return {recorded.name_of(int(i)): int(events.correlation[i]) for i in chosen}


LAUNCHES = (call("launch a", 0, 5, None), call("launch b", 10, 5, None))
KERNELS = (kernel("a", 20, 5, None), kernel("b", 30, 5, None))


@pytest.mark.parametrize("category", ["ac2g", "async_cpu_to_gpu", "async"])
def test_arrows_link_calls_with_kernels(category: str):
    arrows = [
        flow("s", category, 77, 0),
        flow("f", category, 77, 20, pid=0, tid="stream 7"),
        flow("s", category, "other", 12),  # within the call
        flow("f", category, "other", 30, pid=0, tid=7),
    ]
    found = links(read(*LAUNCHES, *KERNELS, *arrows))
    assert found["launch a"] == found["a"] != UNKNOWN
    assert found["launch b"] == found["b"] != UNKNOWN
    assert found["a"] != found["b"]


def test_numbers_of_events_come_first():
    arrows = [flow("s", "ac2g", 1, 0), flow("f", "ac2g", 1, 30, pid=0, tid=7)]
    found = links(read(call("a", 0, 5, 8), kernel("ka", 20, 5, 8), kernel("kb", 30, 5, None), *arrows))
    assert found == {"a": 8, "ka": 8, "kb": 8}


def test_arrows_to_nowhere_link_nothing():
    arrows = [
        flow("s", "ac2g", 1, 7),  # between the calls
        flow("f", "ac2g", 1, 20, pid=0, tid=7),
        flow("s", "ac2g", 2, 0),  # without an end
        flow("f", "ac2g", 3, 30, pid=0, tid=7),  # without a start
        flow("s", "ac2g", [4], 0),
        {**flow("s", "ac2g", 5, 0), "ts": "now"},
    ]
    assert set(links(read(*LAUNCHES, *KERNELS, *arrows)).values()) == {UNKNOWN}


def test_an_operator_and_its_backward():
    recorded = read(
        operator("aten::linear", 0, 20),
        operator("aten::addmm", 0, 20, **{"Sequence number": 4}),
        operator("evaluate_function: AddmmBackward0", 50, 20, thread=BACKWARD, **{"Sequence number": 4}),
        operator("AddmmBackward0", 52, 15, thread=BACKWARD, **{"Sequence number": 4}),
        flow("s", "fwdbwd", 1, 0),
        flow("f", "fwdbwd", 1, 52, tid=BACKWARD),
        flow("s", "fwdbwd", 2, 3),
    )
    pairs = [[recorded.name_of(int(i)) for i in pair] for pair in recorded.gradient_pairs]
    assert pairs == [["aten::addmm", "AddmmBackward0"]]


def test_lanes_that_only_arrows_name_are_no_lanes():
    recorded = read(*LAUNCHES, flow("s", "ac2g", 1, 0, tid=55), flow("f", "ac2g", 1, 0, pid=3, tid=9))
    assert [lane.name for lane in recorded.lanes] == ["thread 101"]

"""Copies on a stream of their own."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.primitives.copy import NewCopy, copy_stream, insert_copies, insert_copy
from daceml.simulation.task import TaskKind
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "l1 cpu 2",
    "conv gpu0 10 with l1 + 4",
    "l2 cpu 2 gap 1",
    "relu gpu0 50 with l2 + 4",
    "l3 cpu 2 gap 1",
    "grad gpu0 9 with l3 + 4",
)
AWAY = NewCopy(name="offload", size_bytes=20e3, direction="to host", source=1)
BACK = NewCopy(name="prefetch", size_bytes=20e3, direction="to device", target=5, launch_before=4)


def test_a_copy_runs_beside_the_kernels_and_holds_back_who_needs_it():
    stream = copy_stream(GRAPH, "copies", like=1)
    schedule = simulate(insert_copies(GRAPH, [AWAY, BACK], stream=stream, bytes_per_s=1e9))
    assert schedule["launch of offload"] == (3, 5) and schedule["launch of prefetch"] == (9, 11)
    assert schedule["offload"] == (14, 42)  # 8 us, and 20 us for the bytes
    assert schedule["prefetch"] == (42, 70) and schedule["relu"] == (14, 64) and schedule["grad"] == (70, 79)


def test_it_knows_its_device_its_bytes_and_that_it_is_a_copy():
    graph = insert_copy(GRAPH, AWAY, stream=copy_stream(GRAPH, "copies", like=1), bytes_per_s=1e9)
    assert graph.lanes[-1].device == 0 and graph.tasks.size_bytes[-1] == 20e3
    assert graph.tasks.kind[-1] == TaskKind.COPY


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_rate_that_means_nothing_is_refused(rate: float):
    with raises(WhatIfError, f"{rate} bytes/s"):
        insert_copy(GRAPH, AWAY, stream=1, bytes_per_s=rate)


def test_a_copy_that_nobody_launches_is_refused():
    with raises(WhatIfError, "'x'"):
        insert_copy(GRAPH, NewCopy(name="x", size_bytes=1, direction="to host"), stream=1, bytes_per_s=1)
    with raises(WhatIfError, "'x'", "-1 bytes"):
        insert_copy(GRAPH, NewCopy(name="x", size_bytes=-1, direction="to host"), stream=1, bytes_per_s=1)

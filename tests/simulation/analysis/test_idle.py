"""Why no kernel runs, and that all of the time is accounted for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation_laws import training_graph
from daceml.simulation.analysis.breakdown import length_us, merged
from daceml.simulation.analysis.idle import (
    COMMUNICATION,
    COPIES,
    EARLIER,
    HOST,
    LATENCY,
    LOADING,
    STREAMS,
    SYNCHRONIZATION,
    idle,
)
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind
from tests.support.task_stories import graph_of


def reasons(graph: TaskGraph) -> dict[str, float]:
    found = idle(simulate(graph))
    assert found is not None and found.total_us == pytest.approx(sum(found.by_reason_us.values()))
    return found.by_reason_us


def test_a_host_that_launches_late_and_the_way_of_a_launch():
    graph = graph_of(
        "l1 cpu 2 gap 3", "a gpu0 10 with l1 + 5",  # 8 .. 18
        "l2 cpu 2 gap 30", "b gpu0 10 with l2 + 5",  # launched at 35
    )  # fmt: skip
    assert reasons(graph) == {HOST: 3 + 17, LATENCY: 5 + 5}


def test_a_launch_after_a_wait_for_the_device_is_synchronization():
    graph = graph_of(
        "l1 cpu 2", "a gpu0 10 with l1 + 5",  # 5 .. 15
        "wait cpu 1 after a + 2", "l2 cpu 2 gap 4", "b gpu0 10 with l2 + 5",
    )  # fmt: skip
    edges = graph.edges
    edges.kind[edges.lag_us == 2] = 1  # EdgeKind.SYNC
    edges.kind[edges.lag_us == 5] = 0  # EdgeKind.LAUNCH
    assert reasons(graph) == {LATENCY: 5, SYNCHRONIZATION: 2 + 1 + 4 + 5}


def test_copies_communication_and_loading_that_a_kernel_waits_for():
    graph = graph_of(
        "load cpu 40 kind data phase data", "l1 cpu 2", "a gpu0 10 after l1",
        "copy gpu0 6 kind copy", "b gpu0 10 gap 1",
        "send link 8 kind collective after b", "c gpu0 5 after send",
    )  # fmt: skip
    assert reasons(graph) == {LOADING: 40, COMMUNICATION: 8, COPIES: 6, HOST: 2, STREAMS: 1}


def test_a_stream_that_begins_with_older_work():
    assert reasons(graph_of("a gpu0 10 gap 50", "l1 cpu 2")) == {EARLIER: 50}


def test_a_run_without_kernels_has_no_reasons():
    assert idle(simulate(graph_of("mm cpu 10 kind operator"))) is None


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_all_time_without_a_kernel_has_a_reason(seed: int):
    schedule = simulate(training_graph(seed))
    kernels = np.flatnonzero(schedule.graph.tasks.kind == TaskKind.KERNEL)
    busy_us = length_us(merged(schedule.start_us[kernels], schedule.end_us[kernels]))
    found = idle(schedule)
    assert found is not None
    assert found.total_us == pytest.approx(schedule.makespan_us - busy_us, abs=1e-6)
    assert all(time_us > 0 for time_us in found.by_reason_us.values())

"""Kernels that share their device with collectives, which take a quarter of it while they run."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.interference import slowed
from tests.support.golden import raises
from tests.support.task_stories import graph_of


def beside(graph: TaskGraph, share: float = 0.25) -> Schedule:
    kinds = graph.tasks.kind
    result = slowed(
        graph, collectives=kinds == TaskKind.COLLECTIVE, computing=kinds == TaskKind.KERNEL, share=share
    )
    return simulate(result)


def test_a_kernel_is_slower_while_a_collective_runs():
    schedule = beside(graph_of("gemm gpu0 100", "sum link 40", "relu gpu0 10"))
    assert schedule["gemm"] == pytest.approx((0, 110)) and schedule["relu"] == pytest.approx((110, 120))


def test_a_kernel_that_a_collective_covers_runs_at_the_rest_of_the_device():
    schedule = beside(graph_of("gemm gpu0 30", "sum link 1000"))
    assert schedule["gemm"] == pytest.approx((0, 40), abs=0.01)


def test_two_collectives_at_once_take_the_device_once():
    schedule = beside(
        graph_of("gemm gpu0 100", "sum link0 40", "part link1 20 gap 10", "late link1 10 gap 30")
    )
    # busy from 0 to 40 and from 60 to 70
    assert schedule["gemm"] == pytest.approx((0, 112.5))


def test_calls_on_a_cpu_are_not_slowed():
    assert beside(graph_of("call cpu 50", "sum link 40"))["call"] == (0, 50)


def test_a_collective_cannot_take_all_of_a_device():
    with raises(WhatIfError, "1.0"):
        beside(graph_of("gemm gpu0 100", "sum link 40"), share=1.0)

"""Other durations, the same graph."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.primitives.scale import scale, scale_gaps, set_duration
from daceml.simulation.primitives.select import select
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "launch cpu 2", "gemm gpu0 10 after launch", "relu gpu0 4 gap -1", "sync cpu 1 gap 3 after relu"
)


def test_a_faster_kernel_ends_what_follows_it_earlier():
    schedule = simulate(scale(GRAPH, select(GRAPH, name="gemm"), 0.5))
    assert schedule["gemm"] == (2, 7) and schedule["relu"] == (6, 10) and schedule["sync"] == (10, 11)


def test_what_is_at_the_floor_does_not_scale():
    schedule = simulate(scale(GRAPH, select(GRAPH, lane="gpu"), 0.5, floor_us=4))
    assert schedule["gemm"] == (2, 9) and schedule["relu"] == (8, 12)


def test_gaps_scale_but_kernels_that_overlap_stay_so():
    schedule = simulate(scale_gaps(GRAPH, select(GRAPH), 10))
    assert schedule["relu"] == (11, 15) and schedule["sync"] == (32, 33)


def test_durations_are_set_one_for_all_or_each():
    kernels = select(GRAPH, lane="gpu")
    assert simulate(set_duration(GRAPH, kernels, 1))["sync"] == (5, 6)
    assert simulate(set_duration(GRAPH, kernels, np.array([20.0, 5.0])))["relu"] == (21, 26)
    assert simulate(GRAPH)["relu"] == (11, 15)


@pytest.mark.parametrize("factor", [-1, float("nan"), float("inf")])
def test_a_factor_that_means_nothing_is_refused(factor: float):
    for edit in (scale, scale_gaps):
        with raises(WhatIfError, factor):
            edit(GRAPH, select(GRAPH), factor)
    with raises(WhatIfError):
        set_duration(GRAPH, select(GRAPH), factor)


def test_a_duration_for_each_of_other_tasks_is_refused():
    with raises(WhatIfError, "3", "2"):
        set_duration(GRAPH, select(GRAPH, lane="gpu"), np.ones(3))

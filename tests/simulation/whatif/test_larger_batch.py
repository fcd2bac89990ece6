"""Work grows with the batch, launches do not."""

from __future__ import annotations

import dataclasses
import math

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.support.golden import golden, raises
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "DataLoader cpu 8 kind data",
    "l1 cpu 5",
    "gemm gpu0 10 after l1 phase forward",
    "relu gpu0 3 phase forward",
    "HtoD gpu0 4 kind copy phase forward",
    "adam gpu0 6 phase optimizer",
    "sum link 7 after adam",
)
CERTAIN = LargerBatch(ratio=3.0, floor_us=Estimate.known(1), growth=Estimate.known(1))


def test_all_but_launches_optimizer_and_communication_grow_above_the_floor():
    schedule = simulate(applied(CERTAIN, GRAPH))
    assert schedule["DataLoader"] == (0, 24) and schedule["l1"] == (24, 29) and schedule["gemm"] == (29, 57)
    assert schedule["relu"] == (57, 64) and schedule["HtoD"] == (64, 74) and schedule["adam"] == (74, 80)
    assert schedule["sum"] == (80, 87)


def test_a_measured_floor_goes_before_the_assumed_one():
    known = dataclasses.replace(CERTAIN, floors_us={"gemm": 4.0})
    start, end = simulate(applied(known, GRAPH))["gemm"]
    assert end - start == 4 + 3 * 6


def test_operators_of_a_run_without_a_device_grow():
    graph = graph_of(
        "aten::mm cpu 10 kind operator phase forward", "next cpu 1 gap 5 kind operator phase optimizer"
    )
    assert simulate(applied(CERTAIN, graph))["next"] == (33, 34)


def test_a_batch_that_is_none_is_refused():
    reason = LargerBatch(ratio=0.0).check(GRAPH)
    assert reason == golden() and "0.0" in reason
    for ratio in (-2.0, math.inf, math.nan):
        with raises(WhatIfError, "batch", "ratio", f"{ratio:g}"):
            LargerBatch(ratio=ratio)
    assert LargerBatch().check(graph_of("adam gpu0 1 phase optimizer")) == golden()

"""Gradient accumulation: parts of a batch hold less, and gradients of all of them."""

from __future__ import annotations

import numpy as np

from daceml.errors import AllocationError, WhatIfError
from daceml.simulation import simulate
from daceml.simulation.memory import Allocations, accumulated, memory_over_time
from daceml.simulation.whatif.gradient_accumulation import GradientAccumulation
from tests.support.golden import raises
from tests.support.task_stories import graph_of

FORWARD, BACKWARD, ADD, OPTIMIZER, CLEAR = range(5)
STEP = graph_of(
    "forward cpu 40 kind operator phase forward layer a step 0",
    "backward cpu 80 kind operator phase backward layer a step 0",
    "add cpu 4 kind operator phase backward layer a step 0",
    "optimizer cpu 10 kind operator phase optimizer step 0",
    "clear cpu 0 kind operator step 0",
)
BLOCKS = Allocations.of(
    [
        (1000, -1, -1),  # weights
        (801, FORWARD, BACKWARD),
        (400, BACKWARD, ADD),
        (100, BACKWARD, CLEAR),  # a gradient
        (60, BACKWARD, -1),  # another one, whose end nobody saw
        (30, OPTIMIZER, OPTIMIZER),
    ]
)


def test_activations_are_smaller_and_gradients_stay():
    graph, blocks = accumulated(STEP, BLOCKS, every=4)
    rows = zip(
        blocks.size_bytes.tolist(), blocks.taken_by.tolist(), blocks.given_back_by.tolist(), strict=True
    )
    assert list(rows) == [
        (1000, -1, -1),
        (201, FORWARD, BACKWARD),
        (100, BACKWARD, ADD),
        (100, BACKWARD, ADD),  # new, until it is added
        (60, BACKWARD, ADD),
        (30, OPTIMIZER, OPTIMIZER),
        (100, -1, -1),  # of the parts before
        (60, -1, -1),
    ]
    assert memory_over_time(simulate(STEP), BLOCKS).peak_bytes == 1000 + 801 + 560
    assert memory_over_time(simulate(graph), blocks).peak_bytes == 1000 + 160 + 201 + 260


def test_a_step_of_the_graph_is_a_part():
    graph, _ = accumulated(STEP, BLOCKS, every=4)
    whole_us = 4 * simulate(graph).makespan_us
    # floors of work and the adding of gradients make parts longer than the whole
    assert simulate(STEP).makespan_us < whole_us < 1.3 * simulate(STEP).makespan_us
    assert len(graph) == len(STEP)


def test_gradients_of_several_steps_are_there_once():
    steps = graph_of(
        *(
            f"{name}{step} cpu 10 kind operator phase {phase} layer a step {step}"
            for step in (0, 1)
            for name, phase in (("f", "forward"), ("b", "backward"), ("o", "optimizer"))
        )
    )
    _, blocks = accumulated(steps, Allocations.of([(100, 1, 3), (100, 4, -1)]), every=2)
    held = blocks.size_bytes[(blocks.taken_by == -1) & (blocks.given_back_by == -1)]
    np.testing.assert_array_equal(held, [100])


def test_what_cannot_be_accumulated_is_refused():
    with raises(WhatIfError, GradientAccumulation.title, "1"):
        accumulated(STEP, BLOCKS, every=1)
    with raises(AllocationError, "block 0", "task 7", "5"):
        accumulated(STEP, Allocations.of([(1, 7, -1)]), every=2)

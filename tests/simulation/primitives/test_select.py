"""Which tasks an edit is about."""

from __future__ import annotations

import re

import numpy as np
import pytest

from daceml.errors import WhatIfError
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.select import launches_of, returns_of, select
from daceml.simulation.task import Phase, TaskKind
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "launch cpu 1 step 0",
    "Sgemm gpu0 9 after launch layer encoder.0 operator aten::mm phase forward step 0",
    "relu gpu0 3 after launch layer encoder.10 operator aten::relu phase forward step 0",
    "other cpu 1 step 1",
    "adam gpu0 2 after other phase optimizer step 1",
    "copy gpu1 4 kind copy step 1",
)


def named(mask: np.ndarray) -> list[str]:
    return [GRAPH.name_of(task) for task in np.flatnonzero(mask).tolist()]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({}, ["launch", "Sgemm", "relu", "other", "adam", "copy"]),
        ({"name": "sgemm"}, ["Sgemm"]),
        ({"name": re.compile("sgemm")}, []),
        ({"name": lambda name: len(name) == 4}, ["relu", "adam", "copy"]),
        ({"layer": r"encoder\.1"}, ["relu"]),
        ({"operator": "aten::", "phase": Phase.FORWARD}, ["Sgemm", "relu"]),
        ({"phase": (Phase.FORWARD, Phase.OPTIMIZER)}, ["Sgemm", "relu", "adam"]),
        ({"kind": TaskKind.COPY}, ["copy"]),
        ({"kind": (TaskKind.KERNEL, TaskKind.COPY), "step": 1}, ["adam", "copy"]),
        ({"lane": "^cpu$"}, ["launch", "other"]),
    ],
)
def test_everything_that_is_given_holds(question: dict, answer: list[str]):
    assert named(select(GRAPH, **question)) == answer


def test_a_launch_goes_when_all_of_its_work_does():
    assert named(launches_of(GRAPH, select(GRAPH, name="adam|relu"))) == ["other"]
    assert named(launches_of(GRAPH, select(GRAPH, name="gemm|relu"))) == ["launch"]


def test_the_second_half_of_a_blocking_copy_goes_with_the_copy():
    story = graph_of(
        "cpy cpu 1", "copy gpu0 8 kind copy after cpy", "back cpu 1 after copy", "sync cpu 1 after copy"
    )
    renamed = TaskGraph(
        tasks=story.tasks, edges=story.edges, lanes=story.lanes, names=("cpy", "copy", "cpy returns", "sync")
    )
    assert np.flatnonzero(returns_of(renamed, select(renamed, name="^copy"))).tolist() == [2]


def test_a_text_that_is_no_regular_expression_is_refused():
    with raises(WhatIfError, "'gemm('", exact=False):
        select(GRAPH, name="gemm(")

"""The sentences that tests of the simulator are written in."""

from __future__ import annotations

import math

import pytest

from daceml.simulation.task import EdgeKind, Phase, TaskKind
from tests.support.task_stories import graph_of


def test_a_sentence_names_a_task_its_lane_and_what_it_waits_for():
    graph = graph_of("launch cpu 2", "gemm gpu0 10 after launch + 4 gap -1", "done cpu 1 after gemm")
    assert [graph.name_of(task) for task in graph] == ["launch", "gemm", "done"]
    assert [(lane.name, lane.kind, lane.device) for lane in graph.lanes] == [
        ("cpu", "cpu", None),
        ("gpu0", "stream", 0),
    ]
    assert graph.tasks.duration_us.tolist() == [2, 10, 1] and graph.tasks.gap_us.tolist() == [0, -1, 0]
    assert graph.tasks.kind.tolist() == [TaskKind.CALL, TaskKind.KERNEL, TaskKind.CALL]
    edges = graph.edges
    assert (edges.source.tolist(), edges.target.tolist()) == ([0, 1], [1, 2])
    assert edges.lag_us.tolist() == [4, 0] and edges.kind.tolist() == [EdgeKind.LAUNCH, EdgeKind.SYNC]


def test_a_sentence_tells_everything_that_a_graph_knows_of_a_task():
    graph = graph_of(
        "step gpu1 2 step 1",
        "sum link3~ 6 with step + 2 after step step 1 bytes 64 layer fc operator aten::mm phase backward "
        "priority 3 kind copy at 7",
    )
    tasks, edges = graph.tasks, graph.edges
    assert edges.source.tolist() == [0, 0] and edges.from_start.tolist() == [True, False]
    assert edges.lag_us.tolist() == [2, 0]
    assert (graph.layer_of(1), graph.operator_of(1), tasks.size_bytes[1]) == ("fc", "aten::mm", 64)
    assert (tasks.kind[1], tasks.phase[1]) == (TaskKind.COPY, Phase.BACKWARD)
    assert (tasks.priority[1], tasks.recorded_us[1], tasks.step[1]) == (3, 7, 1)
    assert math.isnan(tasks.recorded_us[0]) and graph.step_names == ("step 0", "step 1")
    assert [(lane.name, lane.device, lane.ordered) for lane in graph.lanes] == [
        ("gpu1", 1, True),
        ("link3", 0, False),
    ]


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("a cpu 1 beside b", "what is 'beside'"),
        ("a cpu 1 after b", "nobody told of a task 'b'"),
        ("a tpu 1", "lane 'tpu' is none of"),
    ],
)
def test_a_sentence_that_says_nothing_known_is_refused(sentence: str, message: str):
    with pytest.raises(ValueError, match=message):
        graph_of(sentence)

"""Folding: one of all equal ranks, whose replay is that of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daceml.errors import SymmetryError
from daceml.operations.database.records import Operation
from daceml.simulation import TaskGraph, simulate
from daceml.simulation.distributed.parallelism.block_times import BlockTimes, HostTimes
from daceml.simulation.distributed.parallelism.communication import Communication
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.step_graph import StepCosts, step_graph
from daceml.simulation.distributed.parallelism.transformer import Transformer
from daceml.simulation.distributed.symmetry import fold
from daceml.simulation.network.links import Link
from daceml.simulation.network.topology import Topology
from tests.support.golden import raises
from tests.support.task_stories import graph_of

MODEL = Transformer(layers=4, hidden=64, heads=4, sequence=16, vocabulary=100)
PLAN = ParallelPlan(data=3, tensor=2, pipeline=2, global_batch=12, bucket_bytes=1e5)


def by_operands(operation: Operation) -> float:
    return sum(operand.elements for operand in operation.operands) / 1e4


def all_ranks() -> TaskGraph:
    link = Link(bytes_per_s=20e9, latency_us=1)
    costs = StepCosts(
        blocks=BlockTimes(operators=by_operands),
        communication=Communication(topology=Topology(devices_per_node=16, inside=link)),
        host=HostTimes(call_us=0.5, latency_us=2.0),
    )
    return step_graph(MODEL, PLAN, costs, ranks="all")


def slowed(graph: TaskGraph, rank: int, factor: float) -> TaskGraph:
    lane = next(number for number, one in enumerate(graph.lanes) if one.name == f"rank {rank}")
    return graph.with_times(
        duration_us=np.where(graph.tasks.lane == lane, factor, 1.0) * graph.tasks.duration_us
    )


def streams(graph: TaskGraph) -> int:
    return sum(lane.kind == "stream" for lane in graph.lanes)


def assert_same_times(graph: TaskGraph) -> None:
    folded = fold(graph)
    every, few = simulate(graph), simulate(folded.graph)
    np.testing.assert_array_equal(few.start_us[folded.task_of], every.start_us)
    np.testing.assert_array_equal(few.end_us[folded.task_of], every.end_us)
    assert [folded.graph.lanes[n].kind for n in folded.lane_of] == [lane.kind for lane in graph.lanes]


def test_of_equal_ranks_one_stays_for_each_stage():
    graph = all_ranks()
    folded = fold(graph)
    assert (streams(graph), streams(folded.graph)) == (12, 2)
    assert_same_times(graph)


def test_a_slow_rank_stands_for_itself_and_for_whom_it_holds_up():
    # its tensor-parallel partner waits with it; the other replicas wait for both, and stay alike
    graph = slowed(all_ranks(), PLAN.rank(data=1, tensor=0, stage=0), 1.5)
    kinds = streams(fold(graph).graph)
    assert 2 < kinds < 12
    assert_same_times(graph)


@given(st.lists(st.tuples(st.integers(0, 11), st.sampled_from([0.5, 2.0, 3.0])), max_size=4))
def test_whatever_differs_all_times_are_those_of_the_whole_graph(changes: list[tuple[int, float]]):
    graph = all_ranks()
    for rank, factor in changes:
        graph = slowed(graph, rank, factor)
    assert_same_times(graph)


def test_lanes_that_wait_for_others_are_others():
    graph = graph_of(
        "a gpu0 5", "b gpu1 7", "work gpu2 1 after a", "work2 gpu3 1 after b", "more gpu4 1 after a"
    )
    names = graph.tasks.name.copy()
    names[2:] = names[2]  # three of one name, two of which wait for the same
    graph = replace(graph, tasks=replace(graph.tasks, name=names))
    assert len(fold(graph).graph.lanes) == 4
    assert_same_times(graph)


def test_nothing_folds_to_nothing():
    graph = graph_of("a gpu0 5")
    nothing = replace(graph, tasks=graph.tasks.taken(np.zeros(1, np.bool_)))
    assert len(fold(nothing).graph) == 0


def test_lanes_without_an_order_are_refused():
    with raises(SymmetryError, "'link'"):
        fold(graph_of("send link~ 1"))

"""Activation checkpointing: which blocks go, which come again, and when."""

from __future__ import annotations

from dataclasses import replace

from daceml.errors import AllocationError, WhatIfError
from daceml.simulation import TaskGraph, simulate
from daceml.simulation.memory import Allocations, memory_over_time
from daceml.simulation.memory.recomputation import recomputed
from daceml.simulation.task import EdgeKind
from tests.support.golden import raises
from tests.support.task_stories import graph_of

OPERATOR = "cpu {} kind operator phase {} layer {} step 0"


def told(name: str, us: float, phase: str, layer: str) -> str:
    return f"{name} {OPERATOR.format(us, phase, layer)}"


# two blocks of two layers each, then their backward phase
STEP = graph_of(
    told("a", 1, "forward", "b.0"),
    told("b", 2, "forward", "b.0"),
    told("c", 3, "forward", "b.1"),
    told("d", 4, "forward", "b.1"),
    told("loss", 1, "forward", "head"),
    told("d'", 5, "backward", "b.1"),
    told("c'", 5, "backward", "b.1"),
    told("b'", 5, "backward", "b.0"),
    told("a'", 5, "backward", "b.0"),
)
A, B, C, D, LOSS, D_, C_, B_, A_ = range(9)
# what each makes, and who frees it
BLOCKS = Allocations.of([(100, A, B_), (10, B, C_), (200, C, D_), (20, D, D_)])


def names(graph: TaskGraph) -> list[str]:
    return [graph.name_of(task) for task in graph]


def lives(graph: TaskGraph, blocks: Allocations) -> list[tuple[int, str, str]]:
    """Bytes of each block, who takes it, and who gives it back."""
    columns = (blocks.size_bytes.tolist(), blocks.taken_by.tolist(), blocks.given_back_by.tolist())
    known = {-1: "", **{task: graph.name_of(task) for task in graph}}
    return [(size, known[first], known[last]) for size, first, last in zip(*columns, strict=True)]


def test_layers_run_again_before_their_backward_phase_and_hold_what_they_made():
    graph, blocks = recomputed(STEP, BLOCKS, layers=r"^b\.\d")
    assert names(graph) == [
        *("a", "b", "c", "d", "loss"),
        *("again c", "again d", "d'", "c'"),
        *("again a", "again b", "b'", "a'"),
    ]
    assert sorted(lives(graph, blocks)) == [
        (10, "b", "c'"),  # the first region's result, which the second one reads
        (20, "again d", "d'"),  # saved by its own backward, too
        (20, "d", "d'"),
        (100, "a", "b"),
        (100, "again a", "b'"),
        (200, "again c", "d'"),
        (200, "c", "d"),
    ]


def test_the_peak_is_that_of_one_region():
    assert memory_over_time(simulate(STEP), BLOCKS).peak_bytes == 330
    graph, blocks = recomputed(STEP, BLOCKS, layers=r"^b\.\d")
    assert memory_over_time(simulate(graph), blocks).peak_bytes == 10 + 20 + 200 + 20
    assert simulate(graph).makespan_us == simulate(STEP).makespan_us + 10


def test_what_a_region_needs_for_a_moment_it_needs_twice():
    blocks = Allocations.of([(7, A, A), (5, A, B), (100, A, B_), (1, B, -1)])
    graph, seen = recomputed(STEP, blocks, layers=r"^b\.0")
    assert sorted(lives(graph, seen)) == [
        (1, "b", ""),
        (5, "a", "b"),
        (5, "again a", "again b"),
        (7, "a", "a"),
        (7, "again a", "again a"),
        (100, "a", "b"),
        (100, "again a", "b'"),
    ]


def test_an_input_that_nobody_saved_stays_for_who_runs_again():
    graph, blocks = recomputed(
        STEP, Allocations.of([(10, B, C), (200, C, D_), (20, D, LOSS)]), layers=r"^b\.\d"
    )
    assert lives(graph, blocks)[0] == (10, "b", "c'")
    assert lives(graph, blocks)[2] == (20, "d", "loss")


def test_what_lingers_beside_a_saved_input_is_freed_as_before():
    lingering = Allocations.of([(10, A, C_), (30, B, C), (200, C, D_), (20, D, LOSS)])
    graph, blocks = recomputed(STEP, lingering, layers=r"^b\.1")
    assert lives(graph, blocks)[:2] == [(10, "a", "c'"), (30, "b", "c")]


def test_other_blocks_keep_their_tasks():
    graph, blocks = recomputed(STEP, Allocations.of([(3, -1, -1), (4, LOSS, A_)]), layers=r"^b\.0")
    assert lives(graph, blocks) == [(3, "", ""), (4, "loss", "a'")]


def test_on_a_device_blocks_belong_to_launches():
    step = "layer b.0 step 0"
    graph = graph_of(
        f"la cpu 1 phase forward {step}", f"lb cpu 1 phase forward {step}",
        f"lc cpu 1 phase backward {step}",
        f"a gpu0 9 with la phase forward {step}", f"b gpu0 9 with lb phase forward {step}",
        f"c gpu0 9 with lc phase backward {step}",
    )  # fmt: skip
    graph = replace(graph, edges=replace(graph.edges, kind=graph.edges.kind * 0 + EdgeKind.LAUNCH))
    changed, blocks = recomputed(graph, Allocations.of([(100, 0, 2), (10, 1, 2)]), layers="^b")
    assert sorted(lives(changed, blocks)) == [
        (10, "launch of again b", "lc"),
        (10, "lb", "lc"),
        (100, "la", "lb"),
        (100, "launch of again a", "lc"),
    ]


def test_layers_that_there_are_not_are_refused():
    with raises(WhatIfError, "'decoder'"):
        recomputed(STEP, BLOCKS, layers="decoder")
    with raises(AllocationError, "block 0", "task 9"):
        recomputed(STEP, Allocations.of([(1, 9, -1)]), layers="b")

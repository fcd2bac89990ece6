"""Where gradients are computed, and who needs them."""

from __future__ import annotations

import pytest

from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.whatif.backward_phases import BackwardPhase, backward_phases, nearest
from tests.simulation.whatif.training_runs import two_layers
from tests.support.task_stories import graph_of


def phase_of(graph: TaskGraph) -> BackwardPhase:
    (phase,) = backward_phases(graph, simulate(graph))
    return phase


def names(graph: TaskGraph, tasks: tuple[int, ...]) -> list[str]:
    return [graph.name_of(task) for task in tasks]


def test_every_step_has_its_own():
    graph = two_layers(2)
    phases = backward_phases(graph, simulate(graph))
    assert [phase.step for phase in phases] == [0, 1]
    assert [names(graph, phase.waiting) for phase in phases] == [["sgd.0"], ["sgd.1"]]
    assert names(graph, phases[1].releasing(["b", "a"])) == ["b.bw.1", "a.bw.1"]


def test_a_layer_on_two_streams_is_done_when_both_are():
    graph = graph_of(
        "w0 gpu0 10 phase backward layer a step 0",
        "w1 gpu0 10 phase backward layer a step 0",
        "x gpu1 5 gap 3 phase backward layer a step 0",
    )
    phase = phase_of(graph)
    assert names(graph, phase.releasing(["a"])) == ["x", "w1"]
    assert phase.waiting == ()


def test_a_share_of_the_phase_is_a_share_of_its_work():
    graph = graph_of(*(f"k{n} gpu0 10 phase backward step 0" for n in range(4)))
    phase = phase_of(graph)
    assert [names(graph, phase.at_share(graph, share)) for share in (0.1, 0.25, 0.26, 1.0)] == [
        ["k0"], ["k0"], ["k1"], ["k3"],
    ]  # fmt: skip


def test_work_between_backward_and_optimizer_waits_too():
    graph = graph_of(
        "bw gpu0 10 phase backward layer a step 0",
        "clip gpu0 2 step 0",
        "sgd gpu0 5 phase optimizer step 0",
    )
    assert names(graph, phase_of(graph).waiting) == ["clip"]


def test_gradients_that_accumulate_are_done_in_the_last_backward_of_the_step():
    graph = graph_of(
        "bw1 gpu0 10 phase backward layer a step 0",
        "fw2 gpu0 10 phase forward layer a step 0",
        "bw2 gpu0 10 phase backward layer a step 0",
        "sgd gpu0 5 phase optimizer step 0",
    )
    phase = phase_of(graph)
    assert names(graph, phase.releasing(["a"])) == ["bw2"] and names(graph, phase.waiting) == ["sgd"]


@pytest.mark.parametrize(
    ("layer", "found"),
    [("a.b", "a.b"), ("a.b.c", "a.b"), ("a.x", "a"), ("d", "d.e"), ("f", None), ("", None)],
)
def test_a_layer_without_work_of_its_own_is_part_of_another(layer: str, found: str | None):
    assert nearest(layer, {"a": (), "a.b": (), "d.e": ()}) == found


def test_kernels_of_a_stream_stand_in_its_order_even_where_they_overlap():
    """The second kernel is so short a one that it starts, and ends, before the first one has begun."""
    graph = graph_of(
        "launch cpu 1 step 0", "a gpu0 2 gap 10 phase backward layer x step 0",
        "b gpu0 1 gap -5 phase backward layer x step 0",
    )  # fmt: skip
    assert names(graph, phase_of(graph).releasing(["x"])) == ["b"]
    assert names(graph, tuple(phase_of(graph).tasks.tolist())) == ["a", "b"]

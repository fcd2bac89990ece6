"""Forward work a second time."""

from __future__ import annotations

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.activation_checkpointing import ActivationCheckpointing
from daceml.simulation.whatif.optimization import applied
from tests.support.golden import golden
from tests.support.task_stories import graph_of

WORK = (("a", "block0.fc", "forward"), ("b", "block1.fc", "forward"), ("db", "block1.fc", "backward"))
WORK += (("da", "block0.fc", "backward"),)
GRAPH = graph_of(
    *(
        sentence
        for name, layer, phase in WORK
        for sentence in (
            f"l_{name} cpu 2 gap 1 phase {phase} step 0 layer {layer}",
            f"{name} gpu0 10 with l_{name} + 4 phase {phase} step 0 layer {layer}",
        )
    )
)


def test_a_layer_runs_again_right_before_its_backward_phase():
    schedule = simulate(applied(ActivationCheckpointing(layers="block0"), GRAPH))
    assert schedule["db"] == (25, 35) and schedule["again a"] == (35, 45) and schedule["da"] == (45, 55)
    assert schedule["launch of again a"] == (10, 12) and schedule["l_da"] == (13, 15)


def test_each_region_runs_again_on_its_own():
    schedule = simulate(applied(ActivationCheckpointing(layers=r"block\d"), GRAPH))
    assert schedule["again b"] == (25, 35) and schedule["db"] == (35, 45)
    assert schedule["again a"] == (45, 55) and schedule["da"] == (55, 65)


def test_operators_of_a_run_without_a_device_run_again_too():
    graph = graph_of(
        "aten::mm cpu 9 kind operator phase forward layer fc",
        "MmBackward cpu 5 kind operator phase backward layer fc",
    )
    schedule = simulate(applied(ActivationCheckpointing(layers="fc"), graph))
    assert schedule["again aten::mm"] == (9, 18) and schedule["MmBackward"] == (18, 23)


def test_layers_that_are_not_there_are_refused():
    option = ActivationCheckpointing(layers="encoder")
    reasons = option.check(GRAPH), option.check(graph_of("a gpu0 1"))
    assert reasons == (golden(), golden())
    assert "'encoder'" in reasons[0] and "'encoder'" not in reasons[1]

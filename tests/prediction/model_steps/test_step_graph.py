"""Steps that nobody ran: who waits for whom, what they take in the long run, and between which limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.operations.database.records import Operand, Operation
from daceml.operations.duration_chain import DurationLadder
from daceml.prediction.model_step import StepOperation
from daceml.prediction.model_steps.host_cost import LATENCY_US, HostCost
from daceml.prediction.model_steps.step_graph import STEPS, step_graph
from daceml.prediction.model_steps.step_prediction import StepPrediction, predict_captured
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.engine import simulate
from daceml.simulation.whatif.optimization import Estimate
from tests.prediction.steps import PLAIN, Told, step_of
from tests.support.golden import golden

FREE = HostCost(call_us=Estimate.known(0.0), view_us=Estimate.known(0.0))


def host(call_us: float, view_us: float = 0.0) -> HostCost:
    return HostCost(call_us=Estimate.known(call_us), view_us=Estimate.known(view_us))


def predicted(*sentences: str, spread: float = 0.0, cost: HostCost = FREE) -> StepPrediction:
    return predict_captured(
        step_of(*sentences), PLAIN, ladder=DurationLadder(learned=[Told(spread)]), host=cost
    )


def test_a_kernel_follows_its_launch_and_the_kernel_before():
    step = step_of("a forward x 10", "b forward x 2", "c forward x 1")
    schedule = simulate(step_graph(step, [10, 2, 1], host=host(5), steps=1))
    assert schedule["launch of a"] == (0, 5)
    assert schedule["a"] == (LATENCY_US, LATENCY_US + 10)
    assert schedule["b"] == (LATENCY_US + 10, LATENCY_US + 12)
    assert schedule["c"] == (LATENCY_US + 12, LATENCY_US + 13)


def test_a_view_takes_the_host_and_no_device():
    step = step_of("a forward x 1", "view forward x 0", "view forward x 0", "b forward x 1")
    schedule = simulate(step_graph(step, [1, 0, 0, 1], host=host(5, 2), steps=1))
    assert schedule["launch of b"] == (9, 14)
    assert len(schedule) == 4


def test_a_device_that_is_slower_than_its_host_decides():
    found = predicted("a forward x 100", "b backward x 50", cost=host(5))
    assert found.step_us == pytest.approx(150)
    assert (found.device_us, found.host_us) == (150, 10)
    assert found.flags == predicted("a forward x 100", "b backward x 50").flags


def test_a_host_that_is_slower_decides_and_is_flagged():
    found = predicted("a forward x 1", "b backward x 1", cost=host(20))
    assert found.step_us == pytest.approx(40)
    assert found.flags[0] == golden() and "0.04 ms" in found.flags[0] and "0.002 ms" in found.flags[0]


def test_a_cuda_graph_needs_one_launch():
    found = predicted(*(["a forward x 1"] * 100), cost=HostCost(graphed=True))
    spacing_us = HostCost(graphed=True).spacing_us()
    assert found.step_us == pytest.approx(100 * (1 + spacing_us))
    assert found.host_us == pytest.approx(10 + 100 * 0.05)
    (note,) = [note for note in found.notes if "CUDA graph" in note]
    assert note == golden()


def test_phases_layers_and_operators_are_kept():
    step = step_of("aten::mm forward enc.0 10", "aten::add backward enc.1 2")
    graph = step_graph(step, [10, 2], steps=1)
    device = [task for task in graph if graph.on_device()[task]]
    assert [(graph.layer_of(t), graph.operator_of(t)) for t in device] == [
        ("enc.0", "aten::mm"),
        ("enc.1", "aten::add"),
    ]
    found = predicted("aten::mm forward enc.0 10", "aten::add backward enc.1 2")
    assert found.by_class_us == {"product": 10, "elementwise": 2}
    assert found.by_layer_us == {"enc.0": 10, "enc.1": 2}
    assert found.by_phase_us == {"forward": 10, "backward": 2}
    assert found.by_basis == {"learned": 1.0}


def test_errors_of_one_kind_add_up_and_those_of_two_kinds_do_not():
    alike = predicted("aten::mm forward x 100", "aten::bmm forward x 100", spread=0.1)
    assert (alike.low_us, alike.high_us) == (pytest.approx(180), pytest.approx(220))
    apart = predicted("aten::mm forward x 100", "aten::add forward x 100", spread=0.1)
    assert apart.high_us == pytest.approx(200 + math.hypot(10, 10))
    assert apart.low_us == pytest.approx(200 - math.hypot(10, 10))
    assert set(apart.errors_us) == {"learned, product", "learned, elementwise", "the host"}


def test_small_sources_are_taken_as_one():
    found = predicted("aten::mm forward x 1000", "aten::add forward x 1", "aten::sum forward x 1", spread=0.1)
    assert set(found.errors_us) == {"learned, product", "others", "the host"}
    assert found.errors_us["others"] == (pytest.approx(0.2), pytest.approx(0.2))


def test_what_nobody_described_moves_its_tensors_once_and_is_flagged():
    strange = StepOperation(
        operation=Operation(operator="mine::strange", operands=(Operand(shape=(10**6,), dtype="float32"),))
    )
    step = step_of("aten::mm forward x 10")
    whole = predict_captured(
        type(step)(name="told", operations=(*step.operations, strange), samples=4),
        PLAIN,
        ladder=DurationLadder(learned=[Told()]),
    )
    (flag, *_) = whole.flags
    assert flag == golden() and "mine::strange" in flag and "%" in flag
    assert whole.by_basis["roofline"] == pytest.approx(1 - 10 / whole.device_us)


def test_throughput_counts_samples_and_dollars():
    found = predicted("aten::mm forward x 1000", cost=FREE)
    assert found.samples_per_s == pytest.approx(4 / 1e-3)
    assert found.samples_per_usd(3.6) == pytest.approx(4 / 1e-3 * 1000)


@given(
    st.lists(st.floats(0.1, 1000), min_size=1, max_size=20),
    st.floats(0, 50),
    st.floats(1, 3),
)
def test_a_step_is_no_shorter_than_its_device_or_its_host(us: list[float], call_us: float, slower: float):
    step = step_of(*(f"a forward x {value:.3f}" for value in us))

    def step_us(durations: list[float]) -> float:
        return step_times(simulate(step_graph(step, durations, host=host(call_us)))).step_us

    seen = step_us(us)
    assert seen >= max(sum(us), call_us * len(us)) - 1e-6
    assert seen <= sum(us) + call_us * len(us) + LATENCY_US + 1e-6
    assert step_us([value * slower for value in us]) >= seen - 1e-6


def test_steps_follow_each_other_without_waiting():
    step = step_of("a forward x 100")
    times = step_times(simulate(step_graph(step, [100], host=host(5))))
    assert len(times.names) == STEPS
    assert times.step_us == pytest.approx(100)

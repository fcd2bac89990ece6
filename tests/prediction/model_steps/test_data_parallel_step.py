"""Several devices: buckets beside the backward phase, what is exposed of them, and what they take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.devices.catalogue import find_device
from daceml.errors import StepPredictionError
from daceml.operations.duration_chain import DurationLadder
from daceml.prediction.model_step import ModelStep
from daceml.prediction.model_steps.data_parallel_step import gradients_of
from daceml.prediction.model_steps.device_links import topology_of
from daceml.prediction.model_steps.host_cost import HostCost
from daceml.prediction.model_steps.step_prediction import StepPrediction, predict_captured
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.links import Link
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.buckets import buckets_of
from daceml.simulation.whatif.optimization import Estimate
from tests.prediction.steps import PLAIN, Told, parameter, step_of
from tests.support.golden import raises

FREE = HostCost(call_us=Estimate.known(0.0), view_us=Estimate.known(0.0))
NOTHING = Estimate.known(0.0)
TRAINED = step_of(
    "fw forward a 100",
    "fw forward b 100",
    "bw backward b 200 ready b.weight",
    "bw backward a 200 ready a.weight",
    "opt optimizer - 50",
    parameters=[parameter("a.weight", 20), parameter("b.weight", 30)],
)


def table(us: float, devices: int = 2) -> MeasuredCollective:
    """An all-reduce that takes as long at every size."""
    sizes, times = np.array([1.0, 1e12]), np.array([us, us])
    return MeasuredCollective(
        collective=Collective.ALL_REDUCE, devices=devices, sizes_bytes=sizes, times_us=times, source="a test"
    )


def on(step: ModelStep, devices: int, **told: object) -> StepPrediction:
    return predict_captured(
        step,
        PLAIN,
        devices=devices,
        ladder=DurationLadder(learned=[Told()]),
        host=FREE,
        **told,  # pyright: ignore
    )


def test_one_device_sends_nothing():
    alone = on(TRAINED, 1)
    assert alone.step_us == pytest.approx(650)
    assert alone.communication_us == 0
    assert not (alone.schedule.graph.tasks.kind == TaskKind.COLLECTIVE).any()


def test_a_bucket_that_is_hidden_costs_nothing_and_the_last_one_is_exposed():
    both = on(TRAINED, 2, measured=table(120), interference=NOTHING)
    # b's bucket runs beside the backward of a; a's stands between it and the optimizer
    assert both.step_us == pytest.approx(650 + 120)
    assert both.communication_us == pytest.approx(120)
    names = [both.schedule.graph.name_of(t) for t in both.schedule.graph]
    assert names.count("all-reduce of bucket 0") == names.count("all-reduce of bucket 1") == 3


def test_a_channel_that_is_busy_makes_the_next_bucket_wait():
    both = on(TRAINED, 2, measured=table(500), interference=NOTHING)
    # from 400 on two all-reduces of 500 us, then the optimizer
    assert both.step_us == pytest.approx(400 + 1000 + 50)


def test_a_collective_takes_its_share_of_the_device():
    both = on(TRAINED, 2, measured=table(100), interference=Estimate.known(0.2))
    # beside 100 us of the first all-reduce, backward of a does 80 us of work
    assert both.step_us == pytest.approx(650 + 100 + 20)


def test_limits_of_the_network_are_limits_of_the_step():
    both = on(TRAINED, 2)
    down, up = both.errors_us["the network"]
    assert down > 0
    assert up > 0
    assert both.low_us < both.step_us < both.high_us


def test_buckets_are_those_of_torch_in_the_order_of_readiness():
    rows = [parameter(f"l{n}.weight", 10) for n in range(6)]
    ready = [f"bw backward l{n} 10 ready l{n}.weight" for n in reversed(range(6))]
    gradients = gradients_of(step_of(*ready, parameters=rows))
    assert [row.ready for row in gradients.rows] == [5, 4, 3, 2, 1, 0]
    buckets = buckets_of(gradients)
    assert [bucket.layers for bucket in buckets] == [("l5",), ("l4", "l3", "l2"), ("l1", "l0")]


def test_inference_on_several_devices_is_as_many_steps_beside_each_other():
    step = step_of("fw forward a 100")
    assert on(step, 8).step_us == pytest.approx(on(step, 1).step_us)
    assert on(step, 8).samples == 8 * 4


@given(
    st.lists(st.tuples(st.floats(1, 500), st.floats(0.1, 60)), min_size=1, max_size=6),
    st.integers(2, 8),
    st.floats(1e9, 1e12),
)
def test_several_devices_never_shorten_a_step_and_a_perfect_link_is_one_device(
    layers: list[tuple[float, float]], devices: int, bandwidth: float
):
    count = len(layers)
    step = step_of(
        *(f"fw forward l{n} {us:.3f}" for n, (us, _) in enumerate(layers)),
        *(f"bw backward l{n} {layers[n][0]:.3f} ready l{n}.w" for n in reversed(range(count))),
        "opt optimizer - 10",
        parameters=[parameter(f"l{n}.w", mb) for n, (_, mb) in enumerate(layers)],
    )
    alone_us = on(step, 1).step_us
    linked = on(step, devices, link=Link(bytes_per_s=bandwidth, latency_us=3.4), interference=NOTHING)
    assert linked.step_us >= alone_us - 1e-6
    faster = on(step, devices, link=Link(bytes_per_s=4 * bandwidth, latency_us=3.4), interference=NOTHING)
    assert faster.step_us <= linked.step_us + 1e-6
    perfect = on(step, devices, measured=table(1e-9, devices), interference=NOTHING)
    assert perfect.step_us == pytest.approx(alone_us, rel=1e-6, abs=1e-3)


def test_links_follow_from_what_is_known_of_a_device():
    topology, share = topology_of(find_device("H100"), 8)
    assert topology.inside.bytes_per_s == 4.5e11
    assert share.likely == 0.75
    topology, share = topology_of(find_device("L40S"), 8)
    assert topology.inside.bytes_per_s == 31.5e9
    assert (share.likely, share.fast) == (0.05, 0.75)


def test_nine_devices_are_refused():
    with raises(StepPredictionError, "9", "8", "daceml trace whatif --ddp"):
        on(TRAINED, 9)

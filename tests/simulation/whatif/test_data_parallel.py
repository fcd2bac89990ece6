"""Data-parallel training on two devices that sum 1 byte a microsecond; each layer has 25 bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daceml.errors import WhatIfError
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Bucket, Gradients
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.simulation.whatif.training_runs import gradients, infinite, pair, two_layers, two_layers_on_cpu
from tests.support.golden import golden, raises
from tests.support.task_stories import graph_of

EXACT = Estimate.known(1.0)
NONE = Estimate.known(0.0)


def ddp(topology: Topology | None = None, **options: object) -> DataParallel:
    known: dict[str, object] = {
        "topology": topology or pair(), "gradients": gradients(), "efficiency": EXACT, "interference": NONE,
        "first_bucket_bytes": 25, "bucket_bytes": 25,
    }  # fmt: skip
    return DataParallel(**(known | options))  # pyright: ignore[reportArgumentType]


def run(graph: TaskGraph, what: DataParallel) -> Schedule:
    return simulate(applied(what, graph), what.policy)


def times(schedule: Schedule, name: str) -> list[tuple[float, float]]:
    tasks = np.flatnonzero(schedule.graph.where_name(lambda known: known == name))
    return [(float(schedule.start_us[task]), float(schedule.end_us[task])) for task in tasks]


def test_each_bucket_goes_when_its_layer_is_done_and_the_optimizer_waits_for_the_last():
    # The first kernel starts 1 us after its launch began; layer b has its gradients at 71, layer a at 101.
    schedule = run(two_layers(1), ddp())
    assert schedule["b.bw.0"] == (41, 71) and times(schedule, "all-reduce of bucket 0") == [(71, 96)]
    assert schedule["a.bw.0"] == (71, 101) and times(schedule, "all-reduce of bucket 1") == [(101, 126)]
    assert schedule["sgd.0"] == (126, 136)


def test_a_bucket_waits_for_the_one_before_it():
    # At half a byte a microsecond each takes 50 us: the second one starts when the first one ends.
    schedule = run(two_layers(1), ddp(pair(0.5)))
    assert times(schedule, "all-reduce of bucket 0") == [(71, 121)]
    assert times(schedule, "all-reduce of bucket 1") == [(121, 171)]
    assert schedule["sgd.0"] == (171, 181)


def test_one_bucket_of_all_gradients_runs_after_the_backward_phase():
    schedule = run(two_layers(1), ddp(first_bucket_bytes=1e9))
    assert times(schedule, "all-reduce of bucket 0") == [(101, 151)] and schedule["sgd.0"] == (151, 161)


def test_every_step_sends_its_own():
    schedule = run(two_layers(2), ddp())
    assert times(schedule, "all-reduce of bucket 0") == [(71, 96), (206, 231)]
    assert schedule["sgd.0"] == (126, 136) and schedule["sgd.1"] == (261, 271)


def test_a_run_on_a_cpu_sends_as_well():
    schedule = run(two_layers_on_cpu(), ddp())
    assert times(schedule, "all-reduce of bucket 0") == [(70, 95)]
    assert times(schedule, "all-reduce of bucket 1") == [(100, 125)] and schedule["sgd"] == (125, 135)


def test_without_layers_gradients_are_ready_by_their_share_of_the_backward_phase():
    # 50 bytes as 10 and 40: the first 20 % are done within b.bw (30 of 60 us), the rest at the end.
    what = ddp(gradients=Gradients.of(50), first_bucket_bytes=10, bucket_bytes=40)
    schedule = run(two_layers(1), what)
    assert times(schedule, "all-reduce of bucket 0") == [(71, 81)]
    assert times(schedule, "all-reduce of bucket 1") == [(101, 141)]
    (unknown,) = set(what.assumptions(two_layers())) - set(ddp().assumptions(two_layers()))
    assert unknown == golden() and "100%" in unknown


def test_a_parameter_inside_or_around_a_layer_belongs_to_it():
    inner = ddp(gradients=Gradients.of({"a.norm.weight": 25, "b.proj.weight": 25}))
    assert times(run(two_layers(1), inner), "all-reduce of bucket 0") == [(71, 96)]


def test_zeroing_gradients_at_the_start_of_a_step_does_not_wait():
    graph = graph_of(
        "zero gpu0 5 phase optimizer step 0",
        "fw gpu0 20 phase forward layer a step 0",
        "bw gpu0 30 phase backward layer a step 0",
        "sgd gpu0 10 phase optimizer step 0",
    )
    schedule = run(graph, ddp(gradients=Gradients.of({"a.weight": 25})))
    assert schedule["zero"] == (0, 5) and schedule["sgd"] == (80, 90)


def test_the_optimizer_waits_on_a_stream_of_its_own_too():
    graph = graph_of(
        "fw gpu0 20 phase forward layer a step 0",
        "bw gpu0.1 30 after fw phase backward layer a step 0",
        "sgd gpu0.2 10 after bw phase optimizer step 0",
        "next gpu0 5 after bw phase forward layer a step 1",
    )
    schedule = run(graph, ddp(gradients=Gradients.of({"a.weight": 25})))
    assert schedule["sgd"] == (75, 85) and schedule["next"] == (50, 55)


def test_kernels_beside_a_collective_are_slower():
    # A fifth of the device: a.bw computes 30 us, of which the collective covers o; it lasts 30 + o / 5.
    # Bucket 0 takes 25 us from 71 on and a.bw all that time: 35 us.
    schedule = run(two_layers(1), ddp(interference=Estimate.known(0.2)))
    assert times(schedule, "all-reduce of bucket 0") == [(71, 96)]
    assert schedule["a.bw.0"] == pytest.approx((71, 106))
    assert times(schedule, "all-reduce of bucket 1")[0] == pytest.approx((106, 131))
    # Of a collective that covers it wholly: 30 / (1 - 0.2).
    schedule = run(two_layers(1), ddp(pair(0.25), interference=Estimate.known(0.2)))
    assert schedule["a.bw.0"] == pytest.approx((71, 108.5), abs=0.01)


def test_a_measured_table_replaces_the_formula():
    table = MeasuredCollective.of(
        [(1, 7), (1000, 7)], collective=Collective.ALL_REDUCE, devices=2, source="story"
    )
    schedule = run(two_layers(1), ddp(measured=table))
    assert times(schedule, "all-reduce of bucket 1") == [(101, pytest.approx(108))]
    refused("4 devices", "2", what=ddp(measured=dataclasses.replace(table, devices=4)))


def test_recorded_buckets_are_sent_as_they_were():
    told = dataclasses.replace(gradients(), sent=(Bucket(size_bytes=50, layers=("b", "a")),))
    schedule = run(two_layers(1), ddp(gradients=told))
    assert times(schedule, "all-reduce of bucket 0") == [(101, 151)]


def test_links_without_cost_change_nothing():
    graph = two_layers()
    schedule, baseline = run(graph, ddp(infinite(), interference=Estimate.known(0.3))), simulate(graph)
    for name in graph.names:
        if name in (graph.name_of(task) for task in graph):
            assert schedule[name] == baseline[name]


def test_at_best_is_no_slower_than_at_worst():
    what = DataParallel(topology=pair(), gradients=gradients(), first_bucket_bytes=25, bucket_bytes=25)
    fast, likely, slow = (run(two_layers(), what.at(side)).makespan_us for side in ("fast", "likely", "slow"))
    assert fast < likely < slow


@settings(max_examples=60, deadline=None)
@given(
    backward=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    limit=st.integers(1, 100),
    speed=st.floats(0.05, 20),
    more=st.floats(1, 50),
    taken=st.floats(0, 0.5),
)
def test_more_bandwidth_is_never_slower(
    backward: list[int], sizes: list[int], limit: int, speed: float, more: float, taken: float
):
    graph = graph_of(
        "fw gpu0 10 phase forward step 0",
        *(
            f"bw{k} gpu0 {us} phase backward layer l{k} step 0"
            for k, us in reversed(list(enumerate(backward)))
        ),
        "sgd gpu0 10 phase optimizer step 0",
    )
    told = Gradients.of({f"l{k}.weight": size for k, size in enumerate(sizes)})

    def makespan(bytes_per_us: float) -> float:
        what = ddp(pair(bytes_per_us), gradients=told, bucket_bytes=limit, interference=Estimate.known(taken))
        return run(graph, what).makespan_us

    slow, fast = makespan(speed), makespan(speed * more)
    settled_us = 0.1  # how near the durations of kernels beside collectives come
    assert simulate(graph).makespan_us <= fast + 1e-6 and fast <= slow + settled_us


def refused(*facts: str, what: DataParallel, graph: TaskGraph | None = None) -> None:
    with raises(WhatIfError, DataParallel.title, *facts):
        applied(what, graph or two_layers(1))


def test_it_is_refused_without_gradients_without_a_backward_phase_and_of_runs_that_communicate():
    refused("`gradients`", what=ddp(gradients=None))
    refused("backward", what=ddp(), graph=graph_of("fw gpu0 20 phase forward step 0"))
    refused("'faster-link'", what=ddp(), graph=applied(ddp(), two_layers(1)))

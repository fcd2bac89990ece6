"""Steps by hand: what waits for what."""

from __future__ import annotations

import pytest

from daceml.errors import StrategyError
from daceml.simulation.distributed.strategy.coarsened import coarsened
from daceml.simulation.distributed.strategy.evaluation import Accelerations, Evaluator
from daceml.simulation.distributed.strategy.plan import (
    Plan,
    bucket_parameters,
    bytes_of_bucket,
    data_parallel_default,
    nothing_fuses,
    separate,
)  # fmt: skip
from daceml.simulation.distributed.strategy.synchronization import Synchronization
from daceml.simulation.network.collectives import Collective, collective_us
from daceml.simulation.network.topology import Topology
from tests.simulation.distributed.strategy.steps import MB, all_fuse, chain, sums
from tests.support.golden import raises


def evaluator(step, network=None, **more) -> Evaluator:
    return Evaluator(step=step, synchronization=network or sums(), fused_us=nothing_fuses, **more)


def test_a_tensor_is_sent_when_it_is_there_and_the_update_waits_for_all():
    step = chain((10, 30 * MB), (10, 5 * MB), (10, 5 * MB), forward=(7, 3), update_us=4)
    found = evaluator(step)(separate(step))
    assert found.computed_us.tolist() == [7, 10, 20, 30, 40]
    assert found.sent_us.tolist() == [50, 55, 60]
    assert found.step_us == 64
    assert found.first_critical_bucket == 0
    joint = evaluator(step)(Plan((1, 2, 3, 4, 5), (5,), (1,)))
    assert (joint.sent_us.tolist(), joint.step_us) == ([80], 84)


def test_where_computing_is_the_limit_no_bucket_is_critical():
    step = chain((10, 1 * MB), (10, 0.0))
    found = evaluator(step)(separate(step))
    assert found.computing_limits
    assert found.first_critical_bucket == 1


def test_parts_pass_stages_at_once():
    network = sums(latency_us=1, us_per_mb=1, stages=2)
    assert network.sync_us(8 * MB) == 18
    assert network.sync_us(8 * MB, 4) == 3 * (1 + 4)
    assert network.best_parts(8 * MB) == 3
    step = chain((10, 8 * MB))
    assert evaluator(step, network)(Plan((1,), (1,), (4,))).step_us == 10 + 15
    assert sums().best_parts(8 * MB) == 1, "one stage alone gains nothing"


def test_everybody_waits_for_the_slowest_device():
    step = chain((10, 5 * MB), devices=4, slowness=(1.0, 2.0, 1.0, 1.0), update_us=1)
    for alike in (True, False):
        found = evaluator(step, accelerations=Accelerations(symmetric=alike))(separate(step))
        assert found.step_us == 20 + 5 + 2
        assert len(found.schedule.graph.lanes) == (2 if alike else 4) + 1


def test_sending_slows_what_is_computed_meanwhile():
    step = chain((10, 10 * MB), (10, 0.0))
    assert evaluator(step, interference=0.5)(separate(step)).step_us == pytest.approx(25)


def test_the_time_of_a_sum_by_replay_is_that_of_its_own_tasks():
    network = sums(latency_us=1, us_per_mb=1, stages=2)
    step = chain((10, 8 * MB), (50, 3 * MB))
    plan = separate(step)
    alone, replayed = (
        evaluator(step, network, accelerations=Accelerations(partial=partial)) for partial in (True, False)
    )
    for bucket in range(2):
        size = bytes_of_bucket(step, plan, bucket)
        assert alone.parts_of(plan, bucket, size) == pytest.approx(replayed.parts_of(plan, bucket, size))
    assert alone.simulated == 0
    assert replayed.simulated > 8


def test_torchs_buckets():
    step = chain((1, 0.5 * MB), (1, 0.7 * MB), (1, 0.0), (1, 20 * MB), (1, 7 * MB), (1, 1 * MB), (1, 0.0))
    plan = data_parallel_default(step)
    assert plan.buckets == (2, 5, 7)
    assert list(bucket_parameters(step, plan)) == [("w0", "w1"), ("w3", "w4"), ("w5",)]
    assert separate(step).buckets == (1, 2, 4, 5, 7)


def test_the_coarsened_view_takes_as_long():
    step = chain(
        (3, 0.0), (4, 9 * MB), (5, 0.0), (6, 0.0), (7, 2 * MB), (8, 0.0), forward=(1, 2), update_us=1
    )
    coarse = coarsened(step, nothing_fuses)
    assert [one.duration_us for one in coarse.computations] == [3, 7, 18, 8]
    assert evaluator(coarse)(separate(coarse)).step_us == evaluator(step)(separate(step)).step_us
    fused = coarsened(step, all_fuse(1.0))
    assert [one.duration_us for one in fused.computations] == [2, 6, 16, 8]
    assert fused.computations[2].members == ("b2", "b3", "b4")


def test_an_all_reduce_between_nodes_has_three_stages():
    topology = Topology.of("2x4", "100Gbps", inside="NVLink3")
    staged = Synchronization.all_reduce(topology, "hierarchical")
    assert len(staged.stages) == 3
    for size in (1e3, 1e6, 1e9):
        whole_us = collective_us(Collective.ALL_REDUCE, size, topology, "hierarchical")
        assert staged.sync_us(size) == pytest.approx(whole_us, rel=0.05)
    assert staged.best_us(100 * MB) < staged.sync_us(100 * MB), "parts of a large tensor overlap"
    assert staged.best_parts(100.0) == 1
    whole = Synchronization.all_reduce(topology)
    assert whole.part_us(0.0) == (0.0,)


@pytest.mark.parametrize(
    ("groups", "buckets", "parts", "facts"),
    [
        ((2, 1), (2,), (1,), ["2, 1"]),
        ((1, 2), (1,), (1,), ["2", "1"]),
        ((2,), (1, 2), (1,), ["2", "1"]),
        ((2,), (2,), (0,), ["1"]),
    ],
)
def test_what_is_no_plan(groups, buckets, parts, facts):
    with raises(StrategyError, *facts):
        Plan(groups, buckets, parts)


def test_what_is_no_step():
    with raises(StrategyError, "daceml.profile(model)"):
        chain((1, 0.0))
    with raises(StrategyError, "3", "2"):
        chain((1, 1.0), devices=3, slowness=(1.0, 2.0))
    with raises(StrategyError, "0 servers"):
        Synchronization.parameter_server(bytes_per_s=1e9, latency_us=1, devices=2, servers=0)
    with raises(StrategyError, "nan"):
        chain((float("nan"), 1.0))

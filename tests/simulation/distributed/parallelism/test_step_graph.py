"""Step graphs: bubbles, all-reduces and launches take what formulas say, for all ranks as for a few."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import EstimationError, ParallelPlanError
from daceml.operations.database.records import Operation
from daceml.simulation import simulate
from daceml.simulation.distributed.parallelism.block_times import BlockTimes, HostTimes
from daceml.simulation.distributed.parallelism.communication import Communication
from daceml.simulation.distributed.parallelism.layer_work import Share, optimizer
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.step_graph import StepCosts, step_graph
from daceml.simulation.distributed.parallelism.transformer import Transformer
from daceml.simulation.network.links import Link
from daceml.simulation.network.topology import Topology
from daceml.simulation.task import TaskKind
from tests.support.golden import raises

MODEL = Transformer(layers=8, hidden=64, heads=8, sequence=16, vocabulary=100)
FREE = Link(bytes_per_s=float("inf"), latency_us=0)
FORWARD, BACKWARD = 2.0, 4.0  # products of attention in a layer, a microsecond each


def attention_only(operation: Operation) -> float:
    """Only products of attention take time: neither embedding nor head has any, so all stages are alike."""
    return 1.0 if operation.operator == "aten::bmm" else 0.0


def costs(
    link: Link = FREE, *, devices: int = 64, host: HostTimes | None = None, estimator: object = attention_only
) -> StepCosts:
    topology = Topology(devices_per_node=devices, inside=link, overhead_us=0)
    return StepCosts(
        blocks=BlockTimes(operators=estimator),  # pyright: ignore[reportArgumentType]
        communication=Communication(topology=topology),
        host=host,
    )


def makespan(plan: ParallelPlan, given: StepCosts, **options: object) -> float:
    return simulate(step_graph(MODEL, plan, given, **options)).makespan_us  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 4), (4, 4), (8, 16)])
def test_a_pipeline_has_one_bubble_less_than_stages(schedule: str, stages: int, micro_batches: int):
    plan = ParallelPlan(pipeline=stages, global_batch=micro_batches, schedule=schedule)  # pyright: ignore
    slot_us = 8 / stages * (FORWARD + BACKWARD)
    assert makespan(plan, costs()) == (micro_batches + stages - 1) * slot_us


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (2, 4), (4, 2)])
def test_interleaving_makes_the_bubble_smaller_by_the_chunks(stages: int, chunks: int):
    plan = ParallelPlan(pipeline=stages, global_batch=8, schedule="interleaved", chunks=chunks)
    slot_us = 8 / stages * (FORWARD + BACKWARD)
    assert makespan(plan, costs()) == (8 + (stages - 1) / chunks) * slot_us


def test_recomputation_goes_forward_once_more():
    plan = ParallelPlan(global_batch=2, recomputation="layers")
    assert makespan(plan, costs()) == 2 * 8 * (2 * FORWARD + BACKWARD)


def test_tensor_parallel_ranks_wait_for_each_of_their_all_reduces():
    # of two ranks: half of the array to each other, twice; 4 in a layer, and of embedding and head 4
    link = Link(bytes_per_s=1e9, latency_us=0)
    plan = ParallelPlan(tensor=2)
    share = Share(model=MODEL, micro_batch=1, tensor=2)
    reduce_us = share.boundary_bytes / 1e9 * 1e6
    losses_us = sum(block.reduced_bytes for block in share.head_forward(batch=False)) / 1e9 * 1e6
    graph = step_graph(MODEL, plan, costs(link))
    assert (graph.tasks.kind == TaskKind.COLLECTIVE).sum() == 4 * 8 + 4
    expected_us = 8 * (FORWARD + BACKWARD) + (4 * 8 + 2) * reduce_us + losses_us
    assert simulate(graph).makespan_us == pytest.approx(expected_us)


def test_gradients_are_reduced_behind_the_backward_or_beside_it():
    link = Link(bytes_per_s=50e9, latency_us=0)
    behind = ParallelPlan(data=2, global_batch=2)
    bucket = 2.0 * MODEL.layer_parameters(1)
    beside = ParallelPlan(data=2, global_batch=2, bucket_bytes=bucket)
    gradients = 2.0 * (
        8 * MODEL.layer_parameters(1) + MODEL.embedding_parameters(1) + MODEL.position_parameters()
    )
    compute_us = 8 * (FORWARD + BACKWARD)
    assert makespan(behind, costs(link)) == pytest.approx(compute_us + gradients / 50e9 * 1e6)
    graph = step_graph(MODEL, beside, costs(link))
    reduced = graph.tasks.size_bytes[graph.tasks.kind == TaskKind.COLLECTIVE]
    assert reduced.sum() == gradients
    assert reduced[:-1].tolist() == [bucket] * 8  # a layer each; the embedding's is what is left
    assert simulate(graph).makespan_us < makespan(behind, costs(link))


def test_a_host_that_is_slow_decides():
    host = HostTimes(call_us=10.0, latency_us=5.0)
    share = Share(model=MODEL, micro_batch=1, tensor=1)
    blocks = [
        share.embedding_forward(), *share.layer_forward() * 8, *share.head_forward(batch=False),
        share.head_backward(), *share.layer_backward() * 8, share.embedding_backward(),
        optimizer(1, "float16"),
    ]  # fmt: skip
    launches = sum(block.launches for block in blocks)
    assert makespan(ParallelPlan(), costs(host=host)) == pytest.approx(
        10.0 * launches + 2 * 5.0
    )  # it waits for the loss
    # and one that is fast does not
    fast = HostTimes(call_us=1e-3, latency_us=0.0)
    assert makespan(ParallelPlan(), costs(host=fast)) == pytest.approx(
        makespan(ParallelPlan(), costs()), abs=1
    )


PLANS = (
    ParallelPlan(data=2, tensor=2, pipeline=2, global_batch=8, recomputation="layers"),
    ParallelPlan(data=3, tensor=4, global_batch=6, bucket_bytes=1e5),
    ParallelPlan(data=2, tensor=2, pipeline=4, global_batch=16, schedule="interleaved", chunks=2),
    ParallelPlan(data=2, pipeline=4, global_batch=12, schedule="gpipe", bucket_bytes=1e4),
)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.text}, {plan.schedule}")
@pytest.mark.parametrize("host", [None, HostTimes(call_us=3.0, latency_us=2.0)], ids=["device", "host"])
def test_a_representative_of_each_stage_takes_as_long_as_all_ranks(
    plan: ParallelPlan, host: HostTimes | None
):
    given = costs(Link(bytes_per_s=20e9, latency_us=1), host=host)
    few, all_ranks = (step_graph(MODEL, plan, given, ranks=which) for which in ("representatives", "all"))  # pyright: ignore
    one, every = simulate(few), simulate(all_ranks)
    assert one.makespan_us == every.makespan_us > 0
    # each stage's first rank, task by task
    for lane in few.lanes:
        if lane.kind == "stream":
            there = next(n for n, other in enumerate(all_ranks.lanes) if other == lane)
            here = few.lane_members(few.lanes.index(lane))
            np.testing.assert_array_equal(one.start_us[here], every.start_us[all_ranks.lane_members(there)])
    assert sum(lane.kind == "stream" for lane in all_ranks.lanes) == plan.ranks


def test_operators_add_up_to_blocks():
    for plan in PLANS:
        given = costs(Link(bytes_per_s=20e9, latency_us=1))
        assert makespan(plan, given, detail="operators") == pytest.approx(makespan(plan, given))


def test_an_operator_that_nobody_knows_is_named():
    with raises(EstimationError, "aten::embedding", "[128, 64], [16] float16", "estimator"):
        step_graph(MODEL, ParallelPlan(), costs(estimator=lambda operation: None))


def on_nodes(devices_per_node: int) -> StepCosts:
    """Two nodes, between which sending a gigabyte takes a second."""
    nodes = Topology(
        devices_per_node=devices_per_node,
        nodes=2,
        inside=FREE,
        outside=Link(bytes_per_s=1e9, latency_us=0),
        overhead_us=0,
    )
    return StepCosts(
        blocks=BlockTimes(operators=attention_only),
        communication=Communication(topology=nodes),
    )


def test_a_stage_that_alone_sends_over_a_link_has_all_of_it():
    plan = ParallelPlan(pipeline=8, global_batch=1)
    graph = step_graph(MODEL, plan, on_nodes(4), ranks="all")
    sends = graph.where_name(lambda name: name.startswith("send of"))
    took_us = graph.tasks.duration_us[sends]
    crossing = took_us[took_us > 0]
    assert len(crossing) == 2, "rank 3 to rank 4, and back"
    assert crossing == pytest.approx(graph.tasks.size_bytes[sends][took_us > 0] / 1e9 * 1e6)


def test_no_rank_stands_for_others_on_other_links():
    # six devices on a node: of the tensor groups 0-3 and 4-7, the second is on both
    plan = ParallelPlan(data=2, tensor=4, global_batch=2)
    with raises(ParallelPlanError, "0.0"):
        step_graph(MODEL, plan, on_nodes(6))
    graph = step_graph(MODEL, plan, on_nodes(6), ranks="all")
    within, across = (
        graph.tasks.duration_us[[lane.name == name for lane in (graph.lanes[n] for n in graph.tasks.lane)]]
        for name in ("tensor group 0 of stage 0", "tensor group 1 of stage 0")
    )
    assert (within == 0).all() and (across > 0).all()


def test_plans_that_do_not_fit_the_network_are_refused():
    with raises(ParallelPlanError, "16 ranks", "8 devices"):
        step_graph(MODEL, ParallelPlan(data=16, global_batch=16), costs(devices=8))
    with raises(ParallelPlanError, "ranks='al'"):
        makespan(ParallelPlan(), costs(), ranks="al")

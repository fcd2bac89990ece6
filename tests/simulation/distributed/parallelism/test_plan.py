"""Plans of parallelism: which rank stands where, and which degrees fit together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.errors import ParallelPlanError
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from tests.support.golden import raises

DEGREE = st.integers(1, 6)


def test_tensor_parallel_ranks_follow_each_other_then_replicas_then_stages():
    plan = ParallelPlan(data=2, tensor=2, pipeline=2, global_batch=4)
    assert plan.tensor_group(data=1, stage=0) == (2, 3)
    assert plan.data_group(tensor=1, stage=1) == (5, 7)
    assert plan.rank(data=1, tensor=0, stage=1) == 6


@given(DEGREE, DEGREE, DEGREE)
def test_every_rank_has_one_place_and_stands_in_one_group_of_each_kind(data: int, tensor: int, pipeline: int):
    plan = ParallelPlan(data=data, tensor=tensor, pipeline=pipeline, global_batch=data)
    stages = range(pipeline)
    of_tensors = [plan.tensor_group(data=d, stage=s) for d in range(data) for s in stages]
    of_data = [plan.data_group(tensor=t, stage=s) for t in range(tensor) for s in stages]
    for groups in (of_tensors, of_data):
        assert sorted(rank for group in groups for rank in group) == list(range(plan.ranks))


def test_chunks_of_layers_go_round_the_stages():
    plan = ParallelPlan(pipeline=2, global_batch=4, schedule="interleaved", chunks=2)
    assert [plan.layers_of(8, stage=0, chunk=c) for c in (0, 1)] == [range(2), range(4, 6)]
    assert [plan.layers_of(8, stage=1, chunk=c) for c in (0, 1)] == [range(2, 4), range(6, 8)]


def test_a_batch_that_is_no_whole_number_of_micro_batches_is_refused():
    with raises(ParallelPlanError, "16", "2", "3") as refused:
        ParallelPlan(data=2, micro_batch=3, global_batch=16)
    assert refused.value.where == "data 2 x tensor 1 x pipeline 1, micro-batch 3 of 16"


def test_chunks_belong_to_the_interleaved_schedule():
    with raises(ParallelPlanError, "'1f1b'", "2"):
        ParallelPlan(chunks=2)
    with raises(ParallelPlanError, "'interleaved'", "1"):
        ParallelPlan(schedule="interleaved")
    with raises(ParallelPlanError, "3", "2"):
        ParallelPlan(pipeline=2, global_batch=3, schedule="interleaved", chunks=2)


def test_a_degree_below_one_is_refused():
    with raises(ParallelPlanError, "tensor 0"):
        ParallelPlan(tensor=0)


def test_layers_that_stages_cannot_share_are_refused():
    with raises(ParallelPlanError, "10", "4", "1"):
        ParallelPlan(pipeline=4).layers_of(10, stage=0)


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"schedule": "foo"}, "schedule='foo'"),
        ({"recomputation": "Layers"}, "recomputation='Layers'"),
        ({"bucket_bytes": -1}, "-1 bytes"),
        ({"bucket_bytes": float("inf")}, "inf bytes"),
    ],
)
def test_words_that_say_nothing_are_refused(fields: dict[str, object], fact: str):
    with raises(ParallelPlanError, fact):
        ParallelPlan(**fields)  # pyright: ignore[reportArgumentType]

from __future__ import annotations

from dataclasses import replace

import pytest

from daceml.distributed.bucket_plan import PLAN_FORMAT, PLAN_VERSION
from daceml.errors import StrategyError
from daceml.simulation.distributed.strategy import advice as advising
from daceml.simulation.distributed.strategy.advice import Advice, advice
from daceml.simulation.distributed.strategy.choices import (
    Choice,
    GradientAccumulation,
    MixedPrecision,
    Recomputation,
    Sharding,
)
from daceml.simulation.distributed.strategy.optimizer import Strategy, optimize
from daceml.simulation.distributed.strategy.search import Problem
from daceml.simulation.distributed.strategy.walk import OPERATOR_FUSION, TENSOR_FUSION, TENSOR_PARTITION
from tests.simulation.distributed.strategy.steps import MB, all_fuse, chain, sums
from tests.support.golden import raises


def strategy(*kinds: str) -> Strategy:
    step = chain((1000, MB), (1000, MB), (4000, 8 * MB), (1000, MB))
    problem = Problem(
        step=step, synchronization=sums(us_per_mb=300, latency_us=10), kinds=frozenset(kinds),
        fused_us=all_fuse(100.0) if OPERATOR_FUSION in kinds else (lambda members: None),
    )  # fmt: skip
    return optimize(problem, budget_s=2, kinds=())


def codes(advised: Advice) -> list[str]:
    return [one.code for one in advised.settings]


def test_a_limit_and_a_plan_with_the_steps_that_they_bring():
    found = strategy(TENSOR_FUSION)
    advised = advice(found, wrapper="w", plan_file="buckets.json")
    limit, plan = advised.settings
    assert limit.code == f"DistributedDataParallel(model, bucket_cap_mb={advised.limit_mb:g})"
    assert limit.step_us == found.found.limit_us < found.found.default_us
    assert plan.code == 'daceml.DistDataParallel(model, buckets="buckets.json")'
    assert plan.step_us == found.step_us <= found.found.limit_us
    assert [name for bucket in advised.buckets for name in bucket.parameters] == ["0", "1", "2", "3"]
    told = advised.plan_json()
    assert told["buckets"] == [list(bucket.parameters) for bucket in advised.buckets]
    assert (told["format"], told["version"]) == (PLAN_FORMAT, PLAN_VERSION), "what DistDataParallel takes"
    assert (advising.PLAN_FORMAT, advising.PLAN_VERSION) == (PLAN_FORMAT, PLAN_VERSION)


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        (GradientAccumulation(4), "with model.no_sync(): ..."),
        (Recomputation(), "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"),
        (Sharding(1), "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(),"),
        (Sharding(2), "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"),
        (Sharding(3), "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.FULL_SHARD)"),
        (MixedPrecision(products=2.0), 'with torch.autocast("cuda", torch.bfloat16): ...'),
    ],
)  # fmt: skip
def test_each_choice_is_a_setting_of_torch(choice: Choice, code: str):
    found = strategy(TENSOR_FUSION)
    chosen = replace(found, chosen=replace(found.chosen, choices=(choice,)))
    setting = advice(chosen).settings[0]
    assert setting.code.startswith(code)
    assert setting.why == choice.name


def test_fused_operators_are_made_by_our_recipe():
    advised = advice(strategy(TENSOR_FUSION, OPERATOR_FUSION))
    assert codes(advised)[0] == "daceml.compile(model)"
    assert "b0 * b1" in advised.settings[0].why


def test_buckets_in_parts_are_no_plan():
    found = strategy(TENSOR_FUSION, TENSOR_PARTITION)
    parts = replace(found.found.plan, parts=(2,) * len(found.found.plan.parts))
    cut = replace(found, found=replace(found.found, plan=parts))
    with raises(StrategyError, "3", "DistDataParallel"):
        advice(cut).plan_json()


def test_sharded_gradients_have_no_buckets():
    found = strategy(TENSOR_FUSION)
    advised = advice(replace(found, chosen=replace(found.chosen, choices=(Sharding(3),))))
    assert len(advised.settings) == 1
    with raises(StrategyError, "FullyShardedDataParallel"):
        advised.plan_json()

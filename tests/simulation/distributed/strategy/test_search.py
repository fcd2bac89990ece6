"""Searches find what trying everything finds, and say what each part of them is worth."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import pytest

from daceml.errors import ImplausibleAnswerError, StrategyError
from daceml.simulation.distributed.strategy.choices import (
    GradientAccumulation,
    MixedPrecision,
    Recomputation,
    Sharding,
    applied,
)  # fmt: skip
from daceml.simulation.distributed.strategy.evaluation import Accelerations, Evaluator
from daceml.simulation.distributed.strategy.optimizer import CHOICES, optimize, register_choice
from daceml.simulation.distributed.strategy.plan import Plan, nothing_fuses
from daceml.simulation.distributed.strategy.search import Found, Problem, Progress, search
from daceml.simulation.distributed.strategy.training_step import Memory
from daceml.simulation.distributed.strategy.walk import KINDS, OPERATOR_FUSION, TENSOR_FUSION
from tests.simulation.distributed.strategy.steps import MB, all_fuse, chain, sums
from tests.support.golden import raises

MEMORY = Memory(parameters=4.0, gradients=4.0, optimizer=8.0, activations=40.0, boundaries=8.0, blocks=4)


def random_step(seed: int, count: int = 8):
    random = Random(seed)
    return chain(*((random.uniform(1, 30), random.choice((0.0, 1, 5, 20)) * MB + 1e3) for _ in range(count)))


@pytest.mark.parametrize("seed", range(6))
def test_buckets_are_the_best_of_all(seed: int):
    step, network = random_step(seed), sums(latency_us=Random(seed).uniform(0, 20))
    evaluator = Evaluator(step=step, synchronization=network, fused_us=nothing_fuses)
    count = len(step.computations)
    groups = tuple(range(1, count + 1))
    everything = [
        Plan(groups, (*cuts, count), (1,) * (len(cuts) + 1))
        for k in range(count)
        for cuts in combinations(range(1, count), k)
    ]
    least = min(evaluator(plan).step_us for plan in everything)
    found = search(Problem(step=step, synchronization=network, kinds=frozenset({TENSOR_FUSION})))
    assert found.converged
    assert found.step_us <= least * 1.01
    assert found.step_us <= found.limit_us
    assert found.step_us <= found.default_us


def test_the_search_is_the_same_again_and_accelerations_do_not_change_its_algorithm():
    step, network = random_step(3), sums(latency_us=5, stages=2)
    problem = Problem(step=step, synchronization=network, fused_us=all_fuse(0.5))
    first, second = (search(problem, seed=1) for _ in range(2))
    assert (first.plan, first.step_us) == (second.plan, second.step_us)
    plain = search(
        problem, accelerations=Accelerations(coarsened=False, partial=False, symmetric=False), refine=False
    )
    fast = search(problem, refine=False)
    assert fast.step_us == pytest.approx(plain.step_us, rel=0.02)
    assert fast.simulated < plain.simulated


def test_a_strategy_that_is_slower_than_the_default_is_refused(monkeypatch: pytest.MonkeyPatch):
    def promised(problem: Problem, **how: Any) -> Found:
        found = search(problem, **how)
        return replace(found, default_us=found.step_us / 2)

    monkeypatch.setattr("daceml.simulation.distributed.strategy.optimizer.search", promised)
    problem = Problem(step=random_step(1), synchronization=sums(), kinds=frozenset({TENSOR_FUSION}))
    with raises(ImplausibleAnswerError, "less work does not slow a step down", exact=False):
        optimize(problem, budget_s=0.1)


def test_only_what_can_be_fused_is():
    def fused_us(members):
        return (
            None if any(one.name == "b3" for one in members) else sum(one.duration_us for one in members) - 1
        )

    step = random_step(1)
    found = search(Problem(step=step, synchronization=sums(), fused_us=fused_us))
    groups = [found.step.computations[first:end] for first, end in found.plan.ranges_of_groups]
    assert all(len(group) == 1 for group in groups if any(one.name == "b3" for one in group))
    none = search(Problem(step=step, synchronization=sums(), fused_us=fused_us, kinds=frozenset()))
    assert len(none.plan.groups) == len(none.step.computations)
    assert none.step_us == none.default_us


def test_moves_that_nobody_knows_are_refused():
    with raises(StrategyError, "'tensor fushion'", "tensor fusion"):
        Problem(step=random_step(1), synchronization=sums(), kinds=frozenset({"tensor fushion"}))


def test_time_that_is_over_ends_a_search_and_progress_is_told():
    told: list[Progress] = []
    problem = Problem(step=random_step(2), synchronization=sums(latency_us=5), fused_us=all_fuse(1.0))
    assert not search(problem, budget_s=0.0).converged
    found = search(problem, observe=told.append)
    assert [one.step_us for one in told] == sorted((one.step_us for one in told), reverse=True)
    assert told[-1].step_us == found.step_us


def test_choices_change_time_and_memory():
    step, network = chain((60, 5 * MB), forward=(30,), update_us=8, devices=4, memory=MEMORY), sums()
    assert MEMORY.peak_bytes == 56
    accumulated, _ = GradientAccumulation(2).apply(step, network)
    assert accumulated.computing_us == step.computing_us
    assert accumulated.memory is not None
    assert accumulated.memory.peak_bytes == 36
    for one in (Recomputation(), MixedPrecision(products=2.0, others=1.5), Sharding(2)):
        several = GradientAccumulation(2)
        orders = [applied(both, step, network)[0] for both in ((several, one), (one, several))]
        assert orders[0] == orders[1], one.name
    again, _ = Recomputation().apply(step, network)
    assert again.computing_us == step.computing_us + 30
    assert again.memory is not None
    assert again.memory.activations == 8 + 32 / 4
    sharded, slow = Sharding(3).apply(step, network)
    assert sharded.memory is not None
    assert sharded.memory.peak_bytes == 4 + 40
    assert (sharded.update_us, slow.sync_us(MB)) == (2, 1.5)
    half, _ = MixedPrecision(products=2.0, others=1.5).apply(step, network)
    assert half.computing_us == pytest.approx(90 / 1.5 + 8)


def test_the_fastest_that_fits():
    step, network = chain((60, 5 * MB), forward=(30,), update_us=8, devices=4, memory=MEMORY), sums()
    problem = Problem(step=step, synchronization=network)
    free = optimize(problem, budget_s=5)
    assert all("recomputation" not in choice.name for choice in free.chosen.choices)
    tight = optimize(problem, memory_bytes=45, budget_s=5, kinds=["gradient accumulation", "recomputation"])
    assert tight.chosen.peak_bytes <= 45
    assert tight.chosen.name in (
        "gradient accumulation over 2",
        "gradient accumulation over 4",
        "gradient accumulation over 8",
    )
    assert tight.contributions.keys() == set(KINDS)
    assert all(without >= tight.step_us - 1e-9 for without in tight.contributions.values())
    with raises(StrategyError, f"{1 / 2**30:.3g} GiB", "gradient accumulation over 8"):
        optimize(problem, memory_bytes=1, budget_s=5)
    with raises(StrategyError, "'recompute'"):
        optimize(problem, kinds=["recompute"])


def test_a_choice_of_ones_own():
    step = chain((60, 5 * MB), forward=(30,))
    register_choice("precision", lambda step: [MixedPrecision(products=2.0, others=3.0)])
    try:
        found = optimize(Problem(step=step, synchronization=sums()), budget_s=2)
    finally:
        del CHOICES["precision"]
    assert "mixed precision" in found.chosen.name


def test_what_fusing_computations_is_worth():
    step = chain(*((10.0, 1e3) for _ in range(6)))
    found = optimize(Problem(step=step, synchronization=sums(), fused_us=all_fuse(2.0)), budget_s=5, kinds=[])
    assert found.contributions[OPERATOR_FUSION] > found.step_us

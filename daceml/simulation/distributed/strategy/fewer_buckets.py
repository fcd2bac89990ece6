"""As few buckets as do no harm: what a bucket costs the host is in no model, so none is made for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from daceml.simulation.distributed.strategy.evaluation import Evaluator
from daceml.simulation.distributed.strategy.plan import Plan
from daceml.simulation.distributed.strategy.search import Found, Problem

TOLERANCE = 1e-3  # of the step


def with_fewer_buckets(plan: Plan, step_us: Callable[[Plan], float], tolerance: float = TOLERANCE) -> Plan:
    """Buckets joined with the next one, from the last to the first, while the step takes no longer.

    Args:
        step_us: of a plan.
        tolerance: share of the step by which all of it may take longer in the end.
    """
    limit_us = step_us(plan) * (1 + tolerance)
    for cut in reversed(plan.buckets[:-1]):
        place = plan.buckets.index(cut)
        joined = plan.with_bucket_joined(cut, max(plan.parts[place : place + 2]))
        if step_us(joined) <= limit_us:
            plan = joined
    return plan


def simplified(found: Found, problem: Problem) -> Found:
    """What was found, with fewer buckets."""
    evaluate = Evaluator(
        step=found.step, synchronization=problem.synchronization, fused_us=problem.fused_us,
        interference=problem.interference,
    )  # fmt: skip
    plan = with_fewer_buckets(found.plan, lambda tried: evaluate(tried).step_us)
    return replace(found, plan=plan, evaluation=evaluate(plan))

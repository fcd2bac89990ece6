from __future__ import annotations

from dataclasses import replace

import pytest

from daceml.simulation.distributed.strategy.fewer_buckets import simplified, with_fewer_buckets
from daceml.simulation.distributed.strategy.plan import Plan, separate
from daceml.simulation.distributed.strategy.search import Problem, search
from tests.simulation.distributed.strategy.steps import MB, chain, sums


def test_buckets_that_hide_anyway_are_joined_and_the_last_one_is_not():
    # sums are short beside computing: only what is sent at the end shows
    step = chain((1000, MB), (1000, MB), (1000, MB))
    problem = Problem(step=step, synchronization=sums(us_per_mb=100), kinds=frozenset())
    found = search(problem, budget_s=1, refine=False)
    found = replace(found, step=step, plan=separate(step))
    fewer = simplified(found, problem)
    assert fewer.plan.buckets == (2, 3)
    assert fewer.step_us == pytest.approx(3100)


def test_no_bucket_is_joined_where_each_pays():
    plan = Plan((1, 2, 3), (1, 2, 3), (1, 1, 1))
    assert with_fewer_buckets(plan, lambda tried: 10.0 - len(tried.buckets)) == plan

from __future__ import annotations

import pytest

from daceml.simulation.building.build import build
from tests.support.golden import golden
from tests.support.recorded_calls import Recording


def notes(told: object) -> tuple[str, ...]:
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    return build(run.trace(daceml=told)).notes


def test_what_the_profiler_cost_is_said():
    steps, cost = notes({"times": {"inflation": 1.31}})
    assert (steps, cost) == (golden(), golden())
    assert "torch.profiler.profile.step" in steps and "1.31" in cost


@pytest.mark.parametrize(
    "told", [{"times": {"inflation": 1.02}}, {"times": {"inflation": None}}, {"times": 3}, [], None]
)
def test_where_it_cost_little_or_nobody_knows_nothing_is_said(told: object):
    assert len(notes(told)) == 1

"""The search's benchmark, on a model of one layer."""

from __future__ import annotations

from benchmarks.distributed.search import ALL, bars, bert, extrapolated_s, problem_of, row, table
from daceml.simulation.distributed.strategy.evaluation import Accelerations
from daceml.simulation.distributed.strategy.search import search


def test_a_search_is_stopped_and_extrapolated():
    problem = problem_of(bert(layers=1), "10Gbps")
    rows = table(problem, stopped_s=0.0)
    assert [one["search"] for one in rows] == ["none", "coarsened view", "partial replay", "symmetry"]
    plain = Accelerations(coarsened=False, partial=False, symmetric=False)
    stopped = search(problem, budget_s=0.0, accelerations=plain, refine=False)
    assert not stopped.converged
    whole = search(problem, accelerations=Accelerations(), refine=False)
    assert extrapolated_s(problem, plain, stopped) > whole.seconds
    times, step = bars([row(ALL, "10Gbps", whole)])
    assert times.met
    assert step.met
    assert step.figure == whole.step_us / whole.default_us

"""Batches that others load."""

from __future__ import annotations

import pytest

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.data_loader import DataLoaderWorkers
from daceml.simulation.whatif.optimization import Estimate, applied
from daceml.simulation.whatif.whatif_result import predict
from tests.support.golden import golden
from tests.support.task_stories import graph_of


def run(load_us: float = 40, steps: int = 4) -> list[str]:
    """Steps that load for so long and compute for 10 us."""
    return [
        sentence
        for k in range(steps)
        for sentence in (
            f"DataLoader{k} cpu {load_us} kind data phase data step {k}",
            f"l{k} cpu 10 step {k}",
        )
    ]


def workers(count: int, **more: object) -> DataLoaderWorkers:
    return DataLoaderWorkers(
        workers=count, fetch_us=Estimate.known(2), slowdown=Estimate.known(1), **{"prefetch": 1, **more}
    )


def test_enough_workers_hide_loading_and_the_loop_only_fetches():
    assert simulate(graph_of(*run()))["l3"] == (190, 200)
    assert simulate(applied(workers(4), graph_of(*run())))["l3"] == (38, 48)


def test_with_too_few_workers_each_step_waits_for_its_batch():
    schedule = simulate(applied(workers(2), graph_of(*run())))
    assert [schedule[f"l{k}"][0] for k in range(4)] == [10, 30, 52, 72]
    assert schedule["load DataLoader2"] == (10, 50)  # once batch 0 has been taken


@pytest.mark.parametrize(("count", "step_us"), [(1, 704), (2, 352), (4, 352)])
def test_a_single_step_waits_for_its_batch_as_every_other_one_would(count: int, step_us: float):
    """The step loads for 704 us and computes for 350: one worker cannot hide that."""
    graph = graph_of(
        "warm-up cpu 5000", "begin cpu 0 kind marker step 0", "load cpu 704 kind data phase data step 0",
        "train cpu 350 step 0", "end cpu 0 kind marker step 0",
    )  # fmt: skip
    seen = predict(graph, [workers(count)])
    assert (seen.baseline_us, seen.step_us) == (1054, step_us)


def test_workers_slow_each_other_and_the_loop_down():
    slow = DataLoaderWorkers(workers=4, fetch_us=Estimate.known(2), slowdown=Estimate.known(1.5))
    assert simulate(applied(slow, graph_of(*run())))["l3"] == (53, 68)


def test_loading_may_go_or_stay():
    graph = graph_of(*run())
    assert simulate(applied(workers(0, remove=True), graph))["l3"] == (30, 40)
    assert simulate(applied(workers(0), graph))["l3"] == (190, 200)


@pytest.mark.parametrize(
    ("option", "sentence", "facts"),
    [
        (workers(4), "l cpu 1", ()),
        (workers(10**6), "DataLoader cpu 9 kind data", ("1000000", "1024")),
        (workers(4), "_MultiProcessingDataLoaderIter cpu 9 kind data", ()),
    ],
    ids=["no data", "too many workers", "workers already"],
)
def test_a_run_that_does_not_tell_how_long_loading_takes_is_refused(option, sentence: str, facts):
    reason = option.check(graph_of(sentence))
    assert reason == golden() and all(fact in reason for fact in facts)

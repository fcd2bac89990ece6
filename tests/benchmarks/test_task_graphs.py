"""Graphs that replays are timed on, and the bars on figures that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import task_graphs
from daceml.simulation.engine import simulate


@pytest.mark.parametrize("name", task_graphs.GRAPHS)
def test_made_up_graphs_can_be_replayed_and_are_the_same_every_time(name: str):
    first, second = (simulate(task_graphs.GRAPHS[name](500), engine="python") for _ in range(2))
    assert first.makespan_us > 0 and first.end_us.tolist() == second.end_us.tolist()
    assert len(first.graph.edges) > 200


def row(case: str, *, ordered_ms: float | None, again_ms: float) -> dict[str, Any]:
    def interval(value: float) -> dict[str, float]:
        return {"median": value, "low": value, "high": value, "n": 5}

    return {
        "case": case,
        "ordered_and_replayed_ms": None if ordered_ms is None else interval(ordered_ms),
        "replayed_ms": interval(80.0),
        "simulated_again_ms": interval(again_ms),
        "worst_again_ms": 90.0,
    }


def test_a_million_tasks_may_take_a_fifth_of_a_second_and_a_change_a_tenth_of_a_replay():
    whole, share = task_graphs.bars_of(row("random, 1000000 tasks, numba", ordered_ms=150, again_ms=6))
    assert whole.met and share.met
    assert (share.figure, share.limit) == (pytest.approx(0.075), 0.1)
    whole, share = task_graphs.bars_of(row("random, 1000000 tasks, numba", ordered_ms=201, again_ms=9))
    assert not whole.met and not share.met


def test_a_small_graph_has_no_bar_on_time_and_one_whose_changes_shift_much_none_at_all():
    assert len(task_graphs.bars_of(row("random, 50000 tasks, numba", ordered_ms=2, again_ms=1))) == 1
    assert task_graphs.bars_of(row("launches, 50000 tasks, numba", ordered_ms=2, again_ms=1)) == []


def test_a_small_case_is_measured():
    seen = task_graphs.measure("random", 300, "python", rounds=6)
    assert seen["ordered_and_replayed_ms"] is None and seen["replayed_ms"]["n"] == 6
    assert seen["simulated_again_told_what_changed_ms"]["n"] == 6

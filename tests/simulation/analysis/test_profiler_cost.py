"""What the profiler takes goes from every operator of a thread, until a step is as short as without it."""

from __future__ import annotations

import dataclasses

import pytest

from daceml.simulation.analysis.profiler_cost import MOST_US, without_profiler
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.whatif_result import predict
from tests.support.task_stories import graph_of


def run(*, inflation: float) -> TaskGraph:
    """120 us a step: three operators, with 6 us between the last two."""
    graph = graph_of(
        "norm cpu 20 step 0 phase forward kind operator",
        "gemm cpu 90 step 0 phase forward kind operator",
        "add cpu 4 gap 6 step 0 phase forward kind operator",
    )
    return dataclasses.replace(graph, inflation=inflation)


def test_gaps_get_shorter_first_and_then_operators():
    plain = without_profiler(run(inflation=120 / 105))
    assert step_times(simulate(plain)).step_us == pytest.approx(105, rel=0.01)
    assert plain.tasks.gap_us.tolist() == pytest.approx([0, 0, 1], abs=0.4)
    assert plain.tasks.duration_us.tolist() == pytest.approx([15, 85, 4], abs=0.4)


def test_no_operator_is_cheaper_than_nothing_nor_the_profiler_dearer_than_it_can_be():
    plain = without_profiler(run(inflation=4.0))
    assert plain.tasks.duration_us.tolist() == pytest.approx([0, 90 - MOST_US, 0], abs=0.2)


@pytest.mark.parametrize("inflation", [float("nan"), 1.0, 0.97])
def test_where_it_cost_nothing_or_nobody_knows_the_run_stays_as_it_is(inflation: float):
    graph = run(inflation=inflation)
    assert without_profiler(graph) is graph


def test_a_step_that_waits_for_its_device_tells_nothing_of_its_threads():
    graph = graph_of(
        "launch cpu 5 step 0", "gemm gpu0 200 step 0 with launch", "synchronize cpu 1 step 0 after gemm"
    )
    plain = without_profiler(dataclasses.replace(graph, inflation=1.5))
    assert plain.tasks.duration_us.tolist() == pytest.approx([4, 200, 0], abs=0.25)  # 201 us are 200 and 1


def test_predictions_start_from_the_run_without_the_profiler():
    seen = predict(run(inflation=120 / 105), [LargerBatch(ratio=2.0)])
    assert seen.baseline_us == pytest.approx(105, rel=0.01)
    assert step_times(seen.baseline).step_us == 120
    assert seen.step_us < 2 * 105 + 2

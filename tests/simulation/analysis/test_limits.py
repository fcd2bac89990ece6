from __future__ import annotations

import pytest

from daceml.simulation.analysis.limits import WORK, limits
from daceml.simulation.engine import simulate
from tests.support.task_stories import graph_of

KERNELS, _, _, DATA, FRAMEWORK, OPERATORS, BETWEEN_OPERATORS = WORK


def found(*sentences: str) -> dict[str, float]:
    return {limit.what: limit.saved for limit in limits(simulate(graph_of(*sentences)))}


def test_a_run_that_the_device_limits_gains_by_faster_kernels_only():
    seen = found("launch cpu 10", "gemm gpu0 90 with launch + 10", "more gpu0 100")
    assert seen[KERNELS] == pytest.approx(0.95)
    assert seen[FRAMEWORK] == 0


def test_a_run_that_the_host_limits_gains_nothing_by_faster_kernels():
    seen = found("a cpu 50", "b cpu 50", "gemm gpu0 10 with a + 5")
    assert seen[KERNELS] == 0
    assert seen[FRAMEWORK] == pytest.approx(0.85)


def test_the_largest_comes_first_and_absent_work_is_not_named():
    assert list(found("load cpu 70 kind data", "a cpu 30")) == [DATA, FRAMEWORK]


def test_a_run_without_a_device_is_limited_by_operators_and_what_is_between():
    seen = found("mm cpu 60 kind operator", "add cpu 20 gap 20 kind operator")
    assert seen == {OPERATORS: pytest.approx(0.8), BETWEEN_OPERATORS: pytest.approx(0.2)}

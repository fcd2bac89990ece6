"""What the loops of the simulator run on."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import EnvironmentProblem
from daceml.simulation import compiled, loops
from daceml.simulation.compiled import LOADING_IN_TASKS, engine_for, run
from tests.support.golden import raises


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has simulated nothing so far, on a machine with numba."""
    monkeypatch.setattr(compiled, "_asked_tasks", 0)
    monkeypatch.setattr(compiled, "_loads", lambda: True)
    compiled._compiled.cache_clear()
    return monkeypatch


@pytest.mark.usefixtures("fresh")
def test_a_small_graph_is_left_to_python_and_a_large_one_is_not():
    assert engine_for(20_000) == "python"
    assert engine_for(LOADING_IN_TASKS) == "numba"


@pytest.mark.usefixtures("fresh")
def test_many_small_graphs_pay_for_loading_numba():
    engines = [engine_for(LOADING_IN_TASKS // 4) for _ in range(5)]
    assert engines == ["python", "python", "python", "numba", "numba"]


def test_without_numba_everything_is_left_to_python(fresh: pytest.MonkeyPatch):
    fresh.setattr(compiled, "_loads", lambda: False)
    assert engine_for(10 * LOADING_IN_TASKS) == "python"
    with raises(EnvironmentProblem, "numba", "daceml[simulation]"):
        run(loops.sweep, (), (), engine="numba")


@pytest.mark.parametrize("sparse", [True, False])
def test_python_writes_into_the_outputs(sparse: bool):
    def double(values: np.ndarray, doubled: np.ndarray) -> int:
        assert type(values[0]) is float, "numbers of numpy would be slow"
        for place, value in enumerate(values):
            doubled[place] = 2 * value
        return len(values)

    doubled = np.zeros(2)
    assert run(double, (np.array([1.0, 2.0]),), (doubled,), engine="python", sparse=sparse) == 2
    assert doubled.tolist() == [2, 4]

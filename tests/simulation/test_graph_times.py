"""Graphs that differ from another one in times only."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import TaskGraphError
from tests.simulation.story import graph_of


def test_other_times_keep_what_is_known_of_the_structure():
    graph = graph_of("a cpu 1", "b gpu0 2 after a")
    structure = graph.structure
    other = graph.with_times(duration_us=np.array([3.0, 4.0]), lag_us=np.array([5.0]))
    assert other.structure is structure and other.names is graph.names
    assert other.tasks.duration_us.tolist() == [3, 4] and other.edges.lag_us.tolist() == [5]
    assert graph.tasks.duration_us.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("times", "what"),
    [
        ({"duration_us": np.array([1.0])}, "column 'duration_us' has shape"),
        ({"duration_us": np.array([1.0, -2.0])}, "task 'b' lasts -2.0 us"),
        ({"gap_us": np.array([np.nan, 0.0])}, "gap_us in row 0 is nan"),
        ({"lag_us": np.array([np.inf])}, "lag_us in row 0 is inf"),
    ],
)
def test_times_that_mean_nothing_are_refused(times: dict[str, np.ndarray], what: str):
    with pytest.raises(TaskGraphError, match=what):
        graph_of("a cpu 1", "b gpu0 2 after a").with_times(**times)

"""Graphs that differ from another one in times only."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import TaskGraphError
from tests.support.golden import raises
from tests.support.task_stories import graph_of


def test_other_times_keep_what_is_known_of_the_structure():
    graph = graph_of("a cpu 1", "b gpu0 2 after a")
    structure = graph.structure
    other = graph.with_times(duration_us=np.array([3.0, 4.0]), lag_us=np.array([5.0]))
    assert other.structure is structure and other.names is graph.names
    assert other.tasks.duration_us.tolist() == [3, 4] and other.edges.lag_us.tolist() == [5]
    assert graph.tasks.duration_us.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("times", "facts"),
    [
        ({"duration_us": np.array([1.0])}, ("'duration_us'", "(1,)")),
        ({"duration_us": np.array([1.0, -2.0])}, ("'b'", "-2.0")),
        ({"gap_us": np.array([np.nan, 0.0])}, ("gap_us", "0", "nan")),
        ({"lag_us": np.array([np.inf])}, ("lag_us", "0", "inf")),
    ],
)
def test_times_that_mean_nothing_are_refused(times: dict[str, np.ndarray], facts: tuple[str, ...]):
    with raises(TaskGraphError, *facts):
        graph_of("a cpu 1", "b gpu0 2 after a").with_times(**times)

"""What holds of edits of any graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daceml.simulation.engine import simulate
from daceml.simulation.graph import NOTHING
from daceml.simulation.primitives.difference import difference
from daceml.simulation.primitives.edit import without
from daceml.simulation.primitives.fuse import cut_where_awaited, fuse_groups
from tests.simulation.random_graphs import task_graphs


@given(task_graphs(), st.data())
def test_what_is_left_of_a_graph_has_an_order_and_is_all_that_was_kept(graph, data: st.DataObject):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), np.bool_)
    rest = without(graph, mask)
    assert rest.tasks.key.tolist() == graph.tasks.key[~mask].tolist()
    simulate(rest)
    found = difference(graph, rest)
    assert sum(change.count for change in found.removed) == mask.sum() and not found.inserted


@given(task_graphs(), st.data())
def test_tasks_fused_where_nobody_waits_in_between_have_an_order(graph, data: st.DataObject):
    numbers = st.integers(NOTHING, 1)
    chosen = np.array(data.draw(st.lists(numbers, min_size=len(graph), max_size=len(graph))), np.int64)
    group = np.where(chosen == NOTHING, NOTHING, chosen * len(graph.lanes) + graph.tasks.lane)
    group = cut_where_awaited(graph, group)
    fused = fuse_groups(graph, group, np.ones(int(group.max(initial=NOTHING)) + 1))
    assert simulate(fused).makespan_us >= 0 and len(fused) <= len(graph)


@given(task_graphs())
def test_taking_out_nothing_changes_nothing(graph):
    same = without(graph, np.zeros(len(graph), np.bool_))
    assert simulate(same).end_us.tolist() == simulate(graph).end_us.tolist()
    assert not difference(graph, same)

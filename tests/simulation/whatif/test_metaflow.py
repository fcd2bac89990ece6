"""Layers that are taken out or scaled."""

from __future__ import annotations

import pytest

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.metaflow import MetaFlow
from daceml.simulation.whatif.optimization import applied
from tests.support.golden import golden
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "l1 cpu 2 layer conv1",
    "a gpu0 10 after l1 layer conv1",
    "l2 cpu 2 layer conv2",
    "b gpu0 10 after l2 layer conv2",
)


def test_a_layer_goes_with_its_launches_and_another_one_grows():
    schedule = simulate(applied(MetaFlow(remove=("conv1",), scale={"conv2": 1.5}), GRAPH))
    assert schedule["l2"] == (0, 2) and schedule["b"] == (2, 17) and len(schedule) == 2


@pytest.mark.parametrize(
    ("policy", "facts"),
    [
        (MetaFlow(), ()),
        (MetaFlow(remove=("fc",)), ("'fc'",)),
        (MetaFlow(scale={"conv1": -1.0}), ("'conv1'", "-1.0")),
        (MetaFlow(remove=("conv1", "conv2")), ("no step remains",)),
    ],
    ids=["nothing", "no layer", "a negative time", "all work"],
)
def test_a_policy_that_changes_nothing_is_refused(policy: MetaFlow, facts: tuple[str, ...]):
    reason = policy.check(GRAPH)
    assert reason == golden() and all(fact in reason for fact in facts)

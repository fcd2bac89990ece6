"""BlueConnect on two nodes of two devices: 10 bytes a microsecond inside a node, 1 between nodes."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.links import Link
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology
from daceml.simulation.whatif.blueconnect import BlueConnect
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.simulation.whatif.training_runs import pair, two_layers
from tests.support.golden import raises

FOUR = Topology(
    devices_per_node=2, nodes=2, overhead_us=0.0,
    inside=Link(bytes_per_s=10e6, latency_us=0), outside=Link(bytes_per_s=1e6, latency_us=0),
)  # fmt: skip


def blueconnect(topology: Topology = FOUR, **options: object) -> BlueConnect:
    known: dict[str, object] = {
        "topology": topology, "gradients": Gradients.of({"a.weight": 40, "b.weight": 40}),
        "efficiency": Estimate.known(1.0), "interference": Estimate.known(0.0), "first_bucket_bytes": 40,
        "bucket_bytes": 40,
    }  # fmt: skip
    return BlueConnect(**(known | options))  # pyright: ignore[reportArgumentType]


def test_a_bucket_is_scattered_level_by_level_and_gathered_back():
    what = blueconnect()
    schedule = simulate(applied(what, two_layers(1)), what.policy)
    # Inside, half of 40 bytes at 10 a us. Between nodes, half of the 20 that are left, at half of the node's
    # link, which both of its devices use.
    assert schedule["reduce-scatter 0 of bucket 0"] == (71, 73)
    assert schedule["reduce-scatter 1 of bucket 0"] == (73, 93)
    assert schedule["all-gather 1 of bucket 0"] == (93, 113)
    # Meanwhile the links inside the nodes have scattered the next bucket.
    assert schedule["reduce-scatter 0 of bucket 1"] == (101, 103)
    assert schedule["all-gather 0 of bucket 0"] == (113, 115)
    assert schedule["reduce-scatter 1 of bucket 1"] == (113, 133)
    assert schedule["all-gather 0 of bucket 1"] == (153, 155) and schedule["sgd.0"] == (155, 165)


def test_one_node_can_be_divided_as_well():
    inside = Topology(devices_per_node=4, inside=Link(bytes_per_s=10e6, latency_us=0), overhead_us=0.0)
    schedule = simulate(applied(blueconnect(inside, factors=(2, 2)), two_layers(1)))
    assert schedule["reduce-scatter 0 of bucket 0"] == (71, 73)
    assert schedule["reduce-scatter 1 of bucket 0"] == (73, 74)


@pytest.mark.parametrize(
    ("what", "facts"),
    [
        (blueconnect(pair()), ("factors",)),
        (blueconnect(factors=(2, 3)), ("2 x 3", "4 devices")),
        (blueconnect(factors=(4,)), ("4", "2 devices")),
        (blueconnect(gradients=None), ("`gradients`",)),
    ],
    ids=["one level", "other factors", "across nodes", "no gradients"],
)
def test_what_cannot_be_divided_is_refused(what: BlueConnect, facts: tuple[str, ...]):
    with raises(WhatIfError, BlueConnect.title, *facts):
        applied(what, two_layers(1))


def test_a_measured_all_reduce_is_refused():
    table = MeasuredCollective.of(
        [(1, 1), (2, 2)], collective=Collective.ALL_REDUCE, devices=4, source="story"
    )
    with raises(WhatIfError, BlueConnect.title, "`measured`"):
        applied(blueconnect(measured=table), two_layers(1))

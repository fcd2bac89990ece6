"""Communication of groups: a table where somebody measured, else the formula for the group's own nodes."""

from __future__ import annotations

import numpy as np

from daceml.errors import ParallelPlanError
from daceml.simulation.distributed.parallelism.communication import Communication
from daceml.simulation.network.collectives import Collective, collective_us
from daceml.simulation.network.links import Link
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology
from tests.support.golden import raises

FAST, SLOW = Link(bytes_per_s=100e9, latency_us=1), Link(bytes_per_s=10e9, latency_us=5)
TWO_NODES = Topology(devices_per_node=4, nodes=2, inside=FAST, outside=SLOW, overhead_us=0)
TABLE = MeasuredCollective.of(
    [(1e6, 70.0), (2e6, 100.0)], collective=Collective.ALL_REDUCE, devices=4, source="a test"
)


def test_a_table_answers_for_a_group_of_its_size_inside_a_node():
    known = Communication(topology=TWO_NODES, measured=(TABLE,))
    assert known.duration_us(Collective.ALL_REDUCE, 1.5e6, range(4)) == 85
    assert known.duration_us(Collective.ALL_REDUCE, 1.5e6, (0, 1, 4, 5)) != 85  # two nodes
    assert known.duration_us(Collective.REDUCE_SCATTER, 1.5e6, range(4)) != 85


def test_groups_that_cross_nodes_at_the_same_time_share_the_links_between_them():
    known = Communication(topology=TWO_NODES)
    pairs = [(rank, rank + 4) for rank in range(4)]
    topologies = known.topologies(pairs)
    assert [(one.devices_per_node, one.nodes) for one in topologies] == [(1, 2)] * 4
    assert [one.outside.bytes_per_s for one in topologies if one.outside] == [2.5e9] * 4
    together = known.durations_us(Collective.ALL_REDUCE, 1e6, pairs)
    np.testing.assert_array_equal(together, collective_us(Collective.ALL_REDUCE, 1e6, topologies[0]))
    assert known.duration_us(Collective.ALL_REDUCE, 1e6, pairs[0]) < together[0]


def test_who_stays_inside_a_node_leaves_its_link_to_others():
    known = Communication(topology=TWO_NODES)
    inside, across = known.durations_us(Collective.SEND, 1e6, [(0, 1), (3, 4)])
    assert inside == known.duration_us(Collective.SEND, 1e6, (0, 1)) < across
    assert across == known.duration_us(Collective.SEND, 1e6, (3, 4))


def test_one_rank_sends_nothing():
    assert Communication(topology=TWO_NODES).duration_us(Collective.ALL_REDUCE, 1e6, (3,)) == 0


def test_ranks_that_do_not_fit_the_network_are_refused():
    known = Communication(topology=TWO_NODES)
    with raises(ParallelPlanError, "rank 8", "8 devices"):
        known.topologies([(0, 8)])
    with raises(ParallelPlanError, "1", "2"):
        known.topologies([(0, 1, 4)])


def test_fewer_devices_than_ranks_are_refused():
    with raises(ParallelPlanError, "9 ranks", "8 devices"):
        Communication(topology=TWO_NODES).require(9)

"""How links join devices."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.network.links import link_of
from daceml.simulation.network.topology import Topology
from tests.support.golden import raises


def test_four_nodes_of_eight_are_written_4x8():
    topology = Topology.of("4x8", "100Gbps", inside="NVLink3")
    assert (topology.nodes, topology.devices_per_node, topology.devices) == (4, 8, 32)
    assert topology.inside.bytes_per_s == 300e9
    assert topology.bus_bytes_per_s == 12.5e9  # the slowest link of the ring


def test_eight_devices_of_one_node_are_written_8():
    topology = Topology.of(8, "NVLink3")
    assert (topology.nodes, topology.devices, topology.bus_bytes_per_s) == (1, 8, 300e9)
    assert topology.at_efficiency(0.5).bus_bytes_per_s == 150e9


@pytest.mark.parametrize(("devices", "fact"), [("many", "'many'"), ("2x2x2", "'2x2x2'"), ("0", "0 devices")])
def test_what_is_no_number_of_devices_is_refused(devices: str, fact: str):
    with raises(WhatIfError, fact):
        Topology.of(devices, "100Gbps")


def test_a_topology_lacks_no_link():
    with raises(WhatIfError, "8 devices", "NVLink3"):
        Topology.of("4x8", "100Gbps")
    with raises(WhatIfError, "2 nodes", "100Gbps"):
        Topology(devices_per_node=1, nodes=2, inside=link_of("NVLink3"))
    assert Topology.of("4x1", "100Gbps").bus_bytes_per_s == 12.5e9

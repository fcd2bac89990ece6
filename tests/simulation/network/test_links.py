"""Links by name or bandwidth, and how they join devices."""

from __future__ import annotations

import math

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.network.links import Link, link_of
from daceml.simulation.network.topology import Topology


def test_a_link_is_known_by_its_name_or_its_bandwidth():
    assert link_of("nvlink3").bytes_per_s == 300e9
    assert link_of("100Gbps").bytes_per_s == 12.5e9
    assert (link_of("NVLink3").latency_us, link_of("100Gbps").latency_us) == (3.4, 9.6)
    assert link_of("NVLink3", latency_us=1).latency_us == 1


def test_an_unknown_link_is_refused_with_those_that_are_known():
    with pytest.raises(WhatIfError, match="neither a bandwidth nor a known link") as refusal:
        link_of("NVLink33")
    assert "NVLink3" in str(refusal.value)
    with pytest.raises(WhatIfError, match="a link of 0 bytes/s"):
        Link(bytes_per_s=0, latency_us=1)
    with pytest.raises(WhatIfError, match="and nan us"):
        Link(bytes_per_s=1, latency_us=math.nan)


def test_four_nodes_of_eight_are_written_4x8():
    topology = Topology.of("4x8", "100Gbps", inside="NVLink3")
    assert (topology.nodes, topology.devices_per_node, topology.devices) == (4, 8, 32)
    assert topology.inside.bytes_per_s == 300e9
    assert topology.bus_bytes_per_s == 12.5e9  # the slowest link of the ring


def test_eight_devices_of_one_node_are_written_8():
    topology = Topology.of(8, "NVLink3")
    assert (topology.nodes, topology.devices, topology.bus_bytes_per_s) == (1, 8, 300e9)
    assert topology.at_efficiency(0.5).bus_bytes_per_s == 150e9


@pytest.mark.parametrize(
    ("devices", "message"),
    [("many", "no number of devices"), ("2x2x2", "no number of devices"), ("0", "1 nodes of 0 devices")],
)
def test_what_is_no_number_of_devices_is_refused(devices: str, message: str):
    with pytest.raises(WhatIfError, match=message):
        Topology.of(devices, "100Gbps")


def test_a_topology_lacks_no_link():
    with pytest.raises(WhatIfError, match="nobody says what joins the 8 devices of a node"):
        Topology.of("4x8", "100Gbps")
    with pytest.raises(WhatIfError, match="nothing joins the 2 nodes"):
        Topology(devices_per_node=1, nodes=2, inside=link_of("NVLink3"))
    assert Topology.of("4x1", "100Gbps").bus_bytes_per_s == 12.5e9

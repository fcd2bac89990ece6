"""fuse_maps: applies to chains of equal loops, keeps values, and says why it does not apply elsewhere."""

from __future__ import annotations

from pathlib import Path

import dace
import pytest
import torch

from daceml.sdfg.network_costs import maps_cost
from daceml.transformations.local.map_fusion import fuse_maps
from tests.support.golden import golden
from tests.support.small_networks import build, elementwise

STEPS = ["_out = _a + dace.float32(1)", "_out = _a * dace.float32(3)", "_out = _a - dace.float32(2)"]


def test_a_chain_becomes_one_map_with_the_same_values(tmp_path: Path):
    x = torch.randn(5, 7)
    (plain,) = build(elementwise(STEPS, (5, 7)), tmp_path, key="plain")([x])
    network = elementwise(STEPS, (5, 7))
    report = fuse_maps(network)
    assert report.fused == ("x1", "x2")
    assert report.absorbed == {"x3": ("x1", "x2")}
    assert maps_cost(network)[0] == 1
    network.sdfg.validate()
    (fused,) = build(network, tmp_path, key="fused")([x])
    assert torch.equal(fused, plain)


def test_a_long_chain_becomes_several_maps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("daceml.transformations.local.map_fusion.MOST_COMPUTATIONS", 3)
    network = elementwise([STEPS[0]] * 7)
    report = fuse_maps(network)
    assert maps_cost(network)[0] == 3
    limit = "more than 3 computations in one kernel take too long to compile"
    assert report.refused == {"x3": limit, "x6": limit}


def test_an_array_that_the_network_returns_stays():
    network = elementwise(STEPS)
    network.sdfg.arrays["x1"].transient = False
    network.outputs = ("x3", "x1")
    assert fuse_maps(network).fused == ("x2",)


def test_an_array_with_two_readers_stays():
    network = elementwise(STEPS[:2])
    state, sdfg = network.state, network.sdfg
    sdfg.add_array("z", [8, 32], dace.float32)
    (shared,) = [n for n in state.data_nodes() if n.data == "x1"]
    state.add_mapped_tasklet(
        "other",
        {"i0": "0:8", "i1": "0:32"},
        {"_a": dace.Memlet("x1[i0, i1]")},
        "_out = _a",
        {"_out": dace.Memlet("z[i0, i1]")},
        external_edges=True,
        input_nodes={"x1": shared},
    )
    report = fuse_maps(network)
    assert report.fused == ()
    assert report.refused == {"x1": golden()}
    assert "2 readers" in report.refused["x1"]


def test_a_reader_at_other_elements_is_refused():
    network = elementwise(STEPS[:2], (6, 6))
    state = network.state
    for edge in state.edges():
        if edge.data.data == "x1" and isinstance(edge.dst, dace.nodes.Tasklet):
            edge.data.subset = dace.subsets.Range.from_string("i1, i0")
    refused = fuse_maps(network).refused
    assert refused == {"x1": golden()}
    assert "[i0, i1]" in refused["x1"] and "[i1, i0]" in refused["x1"]


def dace_float():
    return dace.float32

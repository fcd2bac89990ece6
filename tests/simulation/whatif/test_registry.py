"""Optimisations by name, and from text."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.task import Phase
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.registry import OPTIMIZATIONS, parse
from tests.support.golden import raises


@pytest.mark.parametrize("kind", OPTIMIZATIONS.values(), ids=OPTIMIZATIONS)
def test_every_optimisation_says_what_it_is_and_what_its_figures_rest_on(kind: type[Optimization]):
    assert kind.title and kind.source and kind.__doc__ and kind.option == kind.option.lower()


def test_estimates_are_a_number_or_three():
    assert parse("amp", {"compute-speedup": "3.0:4.0:2.0"}) == OPTIMIZATIONS["amp"](
        compute_speedup=Estimate(3.0, fast=4.0, slow=2.0)
    )
    assert parse("amp", {"compute_speedup": "2"}).compute_speedup == Estimate.known(2.0)


def test_figures_are_read_as_what_they_are():
    assert parse("data-loader", {"workers": "8", "remove": "no"}).workers == 8
    assert parse("cuda-graphs", {"phases": "forward, optimizer"}).phases == (Phase.FORWARD, Phase.OPTIMIZER)
    assert parse("metaflow", {"remove": "a,b", "scale": "c=2,d=0.5"}).scale == {"c": 2.0, "d": 0.5}
    assert parse("fused-adam", {"parameters": "none"}).parameters is None
    assert parse("fused-adam", {"parameters": "1e8"}).parameters == 1e8
    assert parse("low-precision", {"dtype": "fp8"}).dtype == "fp8"


def test_links_and_devices_are_read_as_people_write_them():
    option = parse("ddp", {"topology": "4x8 100Gbps NVLink3", "gradients": "100MB", "algorithm": "ring"})
    assert (option.topology.devices, option.topology.nodes, option.gradients.total_bytes) == (32, 4, 100e6)
    assert parse("ddp", {"topology": "8 NVLink3"}).topology.devices_per_node == 8
    assert parse("faster-link", {"recorded": "25Gbps", "wanted": "100Gbps"}).wanted.bytes_per_s == 100e9 / 8
    assert parse("blueconnect", {"topology": "2x4 10Gbps PCIe3", "factors": "2,4"}).factors == (2, 4)


@pytest.mark.parametrize(
    ("option", "figures", "facts"),
    [
        ("ampp", {}, ("'ampp'", "amp")),
        ("amp", {"speed": "2"}, ("amp", "'speed'", "compute_speedup")),
        ("amp", {"compute_speedup": "fast"}, ("compute_speedup", "'fast'", "LIKELY:BEST:WORST")),
        ("amp", {"compute_speedup": "5:4:2"}, ("compute_speedup", "5.0", "4.0", "2.0")),
        ("data-loader", {"workers": "2.5"}, ("workers", "'2.5'")),
        ("data-loader", {"remove": "perhaps"}, ("remove", "'perhaps'", "true", "false")),
        ("low-precision", {"dtype": "int1"}, ("dtype", "'int1'", "bf16 or fp8")),
        ("cuda-graphs", {"phases": "inference"}, ("phases", "'inference'", "other/forward/backward")),
        ("metaflow", {"scale": "layer1"}, ("scale", "'layer1'", "NAME=NUMBER")),
        ("ddp", {"topology": "8"}, ("topology", "'8'")),
        ("ddp", {"topology": "8 Token-Ring"}, ("topology", "Token-Ring")),
        ("ddp", {"topology": "8 NVLink3", "measured": "log"}, ("measured", "'log'", "Python")),
        ("checkpointing", {}, ("checkpointing", "layers=VALUE")),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_can(
    option: str, figures: dict[str, str], facts: tuple[str, ...]
):
    with raises(WhatIfError, *facts):
        parse(option, figures)

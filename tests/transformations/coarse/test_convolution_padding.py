"""Padding around convolutions: taken in where both sides are alike, put before where they are not."""

from __future__ import annotations

import uuid

import pytest
import torch
from torch.nn import functional

from daceml.config import config
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.runtime.program import Program
from daceml.sdfg.network import Network
from daceml.toolchain.cache import digest
from daceml.transformations.coarse.convolution_padding import place_padding
from tests.support.golden import golden
from tests.support.operator_programs import parse
from tests.support.small_networks import build


def program(network: Network) -> Program:
    """The compiled network; launcher and headers come from the cache that all tests share."""
    return build(network, config().cache_folder, key=digest("test", uuid.uuid4().hex))


def imported(text: str) -> Network:
    return import_model(parse(text), name="network")


def operators(network: Network) -> list[str]:
    return sorted(n.op_type for n in network.state.nodes() if isinstance(n, ONNXNode))


def padded(
    pads: str,
    *,
    mode: str = "constant",
    conv: str = "",
    results: str = "float[n, m, q, r] Y",
    more: str = "",
) -> str:
    """Pad, then a convolution of 3x3."""
    return (
        f"g (float[1, 2, 6, 7] X, float[3, 2, 3, 3] W) => ({results}) <int64[8] pads = {{{pads}}}{more}> "
        f'{{ P = Pad <mode = "{mode}"> (X, pads{", value" if more else ""}) '
        f"Y = Conv <group = 1{conv}> (P, W) }}"
    )


def test_equal_pads_are_taken_into_the_convolution():
    network = imported(padded("0, 0, 2, 1, 0, 0, 2, 1", conv=", pads = [0, 1, 0, 1]"))
    assert place_padding(network) == (1, 0)
    assert operators(network) == ["Conv"]
    assert not network.constants
    lower(network, allowed=("aten",))
    x, w = torch.randn(1, 2, 6, 7), torch.randn(3, 2, 3, 3)
    (y,) = program(network)([x, w])
    torch.testing.assert_close(y, functional.conv2d(x, w, padding=(2, 2)))


@pytest.mark.parametrize(
    ("pads", "options", "facts"),
    [
        ("0, 0, 0, 1, 0, 0, 1, 1", {}, ["(0, 1)", "(1, 1)"]),
        ("0, 0, 1, 1, 0, 0, 1, 1", {"mode": "reflect"}, ["reflect"]),
        ("0, 0, 2, 2, 0, 0, -1, 2", {}, ["crop"]),
        ("1, 0, 1, 1, 0, 0, 1, 1", {}, ["channels"]),
        ("0, 0, 1, 1, 1, 0, 1, 1", {}, ["channels"]),
        ("0, 0, 1, 1, 0, 0, 1, 1", {"more": ", float value = {1.0}"}, ["zero"]),
    ],
)
def test_a_pad_that_no_convolution_can_do_stays(pads: str, options: dict[str, str], facts: list[str]):
    network = imported(padded(pads, **options))
    assert place_padding(network) == (0, 0)
    assert operators(network) == ["Conv", "Pad"]
    (reason,) = [r.reason for r in network.passes[-1].refused]
    assert reason == golden()
    assert all(fact in reason for fact in facts)


def test_a_pad_that_somebody_else_reads_stays():
    results = "float[n, m, q, r] Y, float[n, c, h, w] P"
    network = imported(padded("0, 0, 1, 1, 0, 0, 1, 1", results=results))
    assert place_padding(network) == (0, 0)
    assert operators(network) == ["Conv", "Pad"]


@pytest.mark.parametrize(
    ("shape", "attributes", "ends", "stride"),
    [
        ((2, 2, 7, 8), "pads = [2, 0, 0, 1]", (0, 1, 2, 0), 1),
        ((2, 2, 7, 8), 'auto_pad = "SAME_UPPER", strides = [2, 2]', (0, 1, 1, 1), 2),
        ((1, 2, 9), "pads = [0, 2]", (0, 2), 1),
    ],
)
def test_sides_padded_differently_leave_the_convolution_to_the_vendor(
    shape: tuple[int, ...], attributes: str, ends: tuple[int, ...], stride: int
):
    kernel = (3, 2, *(3,) * (len(shape) - 2))
    sizes, extents = ", ".join(map(str, shape)), ", ".join(map(str, kernel))
    result = ", ".join("nqrs"[: len(shape)])
    text = (
        f"g (double[{sizes}] X, double[{extents}] W) => (double[{result}] Y) "
        f"{{ Y = Conv <{attributes}> (X, W) }}"
    )
    network = imported(text)
    assert place_padding(network) == (0, 1)
    report = lower(network)
    assert [n.chosen for n in report.nodes] == ["native:pad", "aten:convolution"]
    x, w = torch.randn(shape, dtype=torch.float64), torch.randn(kernel, dtype=torch.float64)
    convolve = functional.conv1d if len(shape) == 3 else functional.conv2d
    (y,) = program(network)([x, w])
    torch.testing.assert_close(y, convolve(functional.pad(x, ends), w, stride=stride))


def test_what_cannot_be_known_is_left_alone():
    network = imported(
        "g (float[1, 2, H, 7] X, float[3, 2, 3, 3] W) => (float[1, 3, H, 7] Y) "
        '{ Y = Conv <auto_pad = "SAME_UPPER"> (X, W) }'
    )
    assert place_padding(network) == (0, 0)
    (reason,) = [r.reason for r in network.passes[-1].refused]
    assert reason == golden()
    assert "auto_pad SAME" in reason

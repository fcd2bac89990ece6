"""Convolution as a product of matrices: torch's numbers, the vendor's product or loops, and when it stays."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.config import config
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.lowering import LoweringReport, lower
from daceml.onnx_ops.registry import KINDS, Kind
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.runtime.program import Program
from daceml.sdfg.network import Network
from daceml.toolchain.cache import digest
from daceml.transformations.coarse.convolution_columns import use_columns
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.local.map_fusion import fuse_maps
from tests.support.golden import golden
from tests.support.operator_programs import parse
from tests.support.small_networks import build

NATIVE: tuple[Kind, ...] = ("alias", "native")
VENDOR: tuple[Kind, ...] = ("alias", "aten", "native")
AUTO = 'auto_pad = "SAME_UPPER", strides = [2, 3]'


def imported(text: str) -> Network:
    return import_model(parse(text), name="network")


def compiled(network: Network, allowed: Sequence[Kind]) -> tuple[LoweringReport, Program]:
    report = lower(network, allowed=allowed)
    fuse_maps(network)
    schedule_maps(network)
    network.sdfg.validate()
    return report, build(network, config().cache_folder, key=digest("test", uuid.uuid4().hex))


def one(x: str, w: str, attributes: str = "group = 1", kind: str = "float", rank: int = 4) -> str:
    result = ", ".join("nchwd"[:rank])
    return f"g ({kind}[{x}] X, {kind}[{w}] W) => ({kind}[{result}] Y) {{ Y = Conv <{attributes}> (X, W) }}"


def reasons(network: Network) -> list[str]:
    return [refusal.reason for refusal in network.passes[-1].refused]


# name -> (X, W, bias, attributes, torch's options, pads that torch applies before)
CASES = {
    "padded 3x3 with a bias": ((2, 4, 6, 9), (6, 4, 3, 3), True, "pads = [1, 1, 1, 1]", {"padding": 1}, ()),
    "sides padded differently": ((2, 4, 6, 9), (6, 4, 3, 2), True, "pads = [0, 1, 2, 3]", {}, (1, 3, 0, 2)),
    "strides and dilations": (
        (2, 4, 9, 11),
        (5, 4, 2, 3),
        False,
        "strides = [2, 3], dilations = [3, 2], pads = [2, 1, 2, 1]",
        {"stride": (2, 3), "dilation": (3, 2), "padding": (2, 1)},
        (),
    ),
    "groups": ((2, 4, 5, 6), (6, 2, 3, 3), True, "group = 2", {"groups": 2}, ()),
    "depthwise": ((2, 4, 5, 6), (8, 1, 3, 3), False, "group = 4", {"groups": 4}, ()),
    "1x1": ((2, 4, 5, 6), (6, 4, 1, 1), True, "group = 1", {}, ()),
    "1x1 with strides": ((2, 4, 5, 6), (6, 4, 1, 1), False, "strides = [2, 2]", {"stride": 2}, ()),
    "one window, one channel": ((1, 1, 1, 1), (1, 1, 1, 1), True, "group = 1", {}, ()),
    "one dimension": (
        (2, 3, 11),
        (5, 3, 4),
        False,
        "dilations = [2], pads = [3, 0]",
        {"dilation": 2},
        (3, 0),
    ),
    "three dimensions": (
        (1, 2, 4, 5, 6),
        (3, 2, 2, 3, 1),
        True,
        "pads = [1, 0, 0, 1, 0, 0]",
        {"padding": (1, 0, 0)},
        (),
    ),
    "auto_pad": ((1, 2, 5, 8), (3, 2, 3, 2), False, AUTO, {"stride": (2, 3)}, (0, 0, 1, 1)),
}


@pytest.mark.parametrize("allowed", [NATIVE, VENDOR], ids=["native", "vendor"])
def test_values_are_those_of_torch(allowed: tuple[Kind, ...]):
    """All cases in one program: half of them in float64."""
    inputs: list[torch.Tensor] = []
    declared: list[str] = []
    results: list[str] = []
    lines: list[str] = []
    expected: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(3)
    for i, (x_size, w_size, bias, attributes, options, ends) in enumerate(CASES.values()):
        dtype, kind = (torch.float64, "double") if i % 2 else (torch.float32, "float")
        names = ["X", "W", "B"][: 3 if bias else 2]
        operands = [
            torch.randn(s, dtype=dtype, generator=generator)
            for s in (x_size, w_size, w_size[:1])[: len(names)]
        ]
        inputs += operands
        declared += [
            f"{kind}[{', '.join(map(str, o.shape))}] {n}{i}" for n, o in zip(names, operands, strict=True)
        ]
        function = (functional.conv1d, functional.conv2d, functional.conv3d)[len(x_size) - 3]
        expected.append(function(functional.pad(operands[0], ends), *operands[1:], **options))
        sizes = ", ".join(map(str, expected[-1].shape))
        results.append(f"{kind}[{sizes}] Y{i}")
        lines.append(f"Y{i} = Conv <{attributes}> ({', '.join(f'{n}{i}' for n in names)})")
    network = imported(f"g ({', '.join(declared)}) => ({', '.join(results)}) {{ {' '.join(lines)} }}")
    assert use_columns(network, allowed=allowed, always=True) == len(CASES)
    report, program = compiled(network, allowed)
    assert not any(node.op_type == "Conv" for node in report.nodes)
    products = [node.chosen for node in report.nodes if node.op_type == "MatMul"]
    # two with groups and two samples have batches of a vendor's product that broadcast
    assert products.count("aten:matmul") == (len(CASES) - 2 if allowed is VENDOR else 0)
    for name, actual, wanted in zip(CASES, program(inputs), expected, strict=True):
        torch.testing.assert_close(actual, wanted, msg=lambda text, name=name: f"{name}: {text}")


def test_an_open_batch_and_values_that_are_no_numbers():
    network = imported(one("N, 3, 6, 7", "4, 3, 3, 3", "pads = [1, 1, 1, 1]"))
    assert use_columns(network, always=True) == 1
    _, program = compiled(network, VENDOR)
    w = torch.randn(4, 3, 3, 3)
    for batch in (1, 3, 0):
        x = torch.randn(batch, 3, 6, 7)
        if batch == 3:
            x[1, 0, 2, 2], x[2, 1, 0, 0] = np.nan, np.inf
        (y,) = program([x, w])
        torch.testing.assert_close(y, functional.conv2d(x, w, padding=1), equal_nan=True)


def test_a_pointwise_convolution_needs_no_columns():
    network = imported(one("2, 4, 5, 6", "6, 4, 1, 1"))
    use_columns(network, always=True)
    assert sorted(n.op_type for n in network.state.nodes() if isinstance(n, ONNXNode)) == [
        "MatMul", "Reshape", "Reshape", "Reshape", "Reshape"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "allowed", "facts"),
    [
        (one("1, 64, 28, 28", "64, 64, 3, 3"), KINDS, ["aten:convolution", "1000000", "24920064"]),
        (one("1, 4, 8, 8", "4, 2, 3, 3", "group = 2"), KINDS, ["aten:convolution", "groups"]),
        (one("1, 4, 8, 8", "4, 4, 3, 3", kind="double"), KINDS, ["aten:convolution", "float64"]),
        (one("1, 4, 8, 8", "4, 1, 3, 3", "group = 4"), KINDS, ["depthwise"]),
        (one("1, 4, 8, 8", "4, 4, 3, 3"), NATIVE, ["5184", "2000000"]),
        (one("1, 64, 64, 64", "16, 64, 3, 3"), NATIVE, ["16 rows", "32"]),
        (one("1, 4, h, 8", "4, 4, 3, 3"), KINDS, ["symbolic"]),
        (one("0, 4, 8, 8", "4, 4, 3, 3"), KINDS, ["empty"]),
    ],
)
def test_a_convolution_that_stays(text: str, allowed: tuple[Kind, ...], facts: list[str]):
    network = imported(text)
    assert use_columns(network, allowed=allowed) == 0
    (reason,) = reasons(network)
    assert reason == golden()
    assert all(fact in reason for fact in facts)


def test_small_ones_become_products_and_large_ones_without_a_vendor():
    assert use_columns(imported(one("1, 8, 8, 8", "8, 8, 3, 3"))) == 1
    assert use_columns(imported(one("1, 64, 28, 28", "64, 64, 3, 3")), allowed=NATIVE) == 1


def test_a_pointwise_convolution_over_one_dimension_is_a_product_of_any_size():
    text = one("2, 96, 300", "128, 96, 1", rank=3)
    assert use_columns(imported(text)) == 1
    assert use_columns(imported(text), plain=True) == 1
    for other in (
        one("2, 96, 300", "128, 96, 2", rank=3),
        one("2, 96, 300", "128, 96, 1", "strides = [2]", rank=3),
        one("2, 96, 300", "128, 48, 1", "group = 2", rank=3),
        one("1, 8, 8, 8", "8, 8, 1, 1"),
    ):
        network = imported(other)
        assert use_columns(network, plain=True) == 0
        assert reasons(network) == [golden()]


@pytest.mark.parametrize("batch", [1, 3])
def test_its_gradients_are_those_of_torch(batch: int):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv1d(67, 129, 1), nn.GELU(), nn.Conv1d(129, 33, 1, bias=False))
    compiled = daceml.compile(module)
    x = torch.randn(batch, 67, 301, requires_grad=True)
    weight = torch.randn(batch, 33, 301)
    found: list[list[torch.Tensor]] = []
    for run in (module.double(), compiled.float()):
        dtype = next(module.parameters()).dtype
        given = x.detach().to(dtype).requires_grad_()
        loss = (run(given) * weight.to(dtype)).sum()
        found.append([g.double() for g in torch.autograd.grad(loss, [given, *module.parameters()])])
    for expected, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    steps = compiled.session.latest.program.manifest.steps
    assert not any("Conv" in step.label for step in steps)


def test_a_network_with_small_convolutions():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 4, 3, 2)
    ).eval()
    x = torch.randn(2, 3, 9, 10)
    compiled_module = daceml.compile(module, backward=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled_module(x), module(x))
    assert not any(
        "Conv" in s.label for s in compiled_module.session.latest.program.manifest.steps if s.kind == "aten"
    )

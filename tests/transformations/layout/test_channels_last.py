"""use_channels_last: what changes layout and what stays, with torch's numbers either way."""

from __future__ import annotations

import uuid

import pytest
import torch
from dace.sdfg import nodes
from torch import nn
from torch.nn import functional

import daceml
from daceml.config import config
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.lowering import lower
from daceml.runtime.program import Program
from daceml.sdfg.network import Network
from daceml.toolchain.cache import digest
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.layout.channels_last import use_channels_last
from daceml.transformations.local.map_fusion import fuse_maps
from tests.support.golden import golden
from tests.support.operator_programs import parse
from tests.support.small_networks import build


def changed(text: str) -> tuple[Network, tuple[str, ...]]:
    network = import_model(parse(text), name="network")
    lower(network)
    fuse_maps(network)
    arrays = use_channels_last(network)
    schedule_maps(network)
    network.sdfg.validate()
    return network, arrays


def program(network: Network) -> Program:
    return build(network, config().cache_folder, key=digest("test", uuid.uuid4().hex))


def reasons(network: Network) -> dict[str, str]:
    return {refusal.subject: refusal.reason for refusal in network.passes[-2].refused}


def one(sizes: str, weight: str, kind: str = "float", attributes: str = "group = 1") -> str:
    """relu(conv(relu(x)))."""
    return (
        f"g ({kind}[{sizes}] X, {kind}[{weight}] W) => ({kind}[n, c, h, w] Y) "
        f"{{ A = Relu (X) B = Conv <{attributes}> (A, W) Y = Relu (B) }}"
    )


def test_arrays_around_a_convolution_change_and_numbers_stay():
    network, arrays = changed(one("2, 16, 33, 31", "32, 16, 3, 3"))
    assert arrays == ("A", "B")
    assert tuple(network.sdfg.arrays["A"].strides) == (33 * 31 * 16, 1, 31 * 16, 16)
    orders = [n.map.params for n in network.state.nodes() if isinstance(n, nodes.MapEntry)]
    # the map that writes A goes through its channels innermost; the other one writes a row-major result
    assert sorted(orders) == [["i0", "i1", "i2", "i3"], ["i0", "i2", "i3", "i1"]]
    x, w = torch.randn(2, 16, 33, 31), torch.randn(32, 16, 3, 3)
    x[1, 3, 4, 5], x[0, 2, 30, 30] = torch.nan, torch.inf
    (y,) = program(network)([x, w])
    assert y.is_contiguous()
    expected = functional.relu(functional.conv2d(functional.relu(x), w))
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "array", "facts"),
    [
        (one("2, 16, 33, 31", "32, 16, 3, 3", "double"), "B", ["oneDNN", "float64"]),
        (
            one("1, 8, 8, 8", "8, 8, 3, 3"),
            "B",
            ["20736 multiplications", "below 1000000"],
        ),
        (
            one("1, 16, 9, 9, 9", "64, 16, 3, 3, 3").replace("[n, c, h, w]", "[n, c, d, h, w]"),
            "B",
            ["3 spatial dimensions"],
        ),
        (one("64, 256, 1, 1", "512, 256, 1, 1"), "B", ["memory"]),
        (
            "g (float[2, 16, 33, 31] X, float[32, 16, 3, 3] W) => (float[n, c, h, w] Y) { Y = Conv (X, W) }",
            "Y",
            ["caller"],
        ),
        (
            "g (float[2, 16, 33, 31] X, float[32, 16, 3, 3] W, float[29, 29] M) => (float[n, c, h, w] Y) "
            "{ B = Conv (X, W) Y = MatMul (B, M) }",
            "B",
            ["MatMul"],
        ),
        (
            one("1, 256, 6, 6", "512, 256, 3, 3"),
            "B",
            ["weight"],
        ),
        (
            "g (float[2, 16, 33, 31] X, float[32, 16, 3, 3] W) => (float[c] Y) <int64[3] axes = {0, 2, 3}> "
            "{ B = Conv (X, W) Y = ReduceMean <keepdims = 0> (B, axes) }",
            "B",
            ["channel", "batch"],
        ),
    ],
)
def test_what_gains_nothing_or_is_read_elsewhere_stays(text: str, array: str, facts: list[str]):
    network, arrays = changed(text)
    assert array not in arrays
    reason = reasons(network)[array]
    assert reason == golden()
    assert all(fact in reason for fact in facts)


def test_a_depthwise_convolution_of_few_products_gains():
    _, arrays = changed(one("1, 16, 30, 30", "16, 1, 3, 3", attributes="group = 16"))
    assert arrays == ("A", "B")


def test_an_operand_of_the_caller_is_copied_once_where_it_is_the_smaller_one():
    text = (
        "g (float[2, 3, 40, 41] X, float[32, 3, 5, 5] W) => (float[n, c, h, w] Y) "
        "{ B = Conv (X, W) C = Conv (X, W) Y = Mul (B, C) }"
    )
    network, arrays = changed(text)
    assert set(arrays) == {"B", "C", "X_channels_last"}
    x, w = torch.randn(2, 3, 40, 41), torch.randn(32, 3, 5, 5)
    (y,) = program(network)([x, w])
    torch.testing.assert_close(y, functional.conv2d(x, w).square(), rtol=1e-4, atol=1e-4)


def test_a_larger_operand_of_the_caller_is_read_as_it_is():
    """torch's result is row-major then, and is brought into the layout of its array."""
    text = (
        "g (float[2, 64, 20, 21] X, float[8, 64, 3, 3] W) => (float[n, c, h, w] Y) "
        "{ B = Conv (X, W) Y = Relu (B) }"
    )
    network, arrays = changed(text)
    assert arrays == ("B",)
    x, w = torch.randn(2, 64, 20, 21), torch.randn(8, 64, 3, 3)
    (y,) = program(network)([x, w])
    torch.testing.assert_close(y, functional.conv2d(x, w).relu(), rtol=1e-4, atol=1e-4)


class Block(nn.Module):
    """Everything that stands between the convolutions of a network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.depthwise = nn.Conv2d(32, 32, 3, 1, 1, groups=32)
        self.shrink, self.grow = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
        self.last = nn.Conv2d(32, 64, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = functional.relu6(self.norm(self.stem(x)))
        x = x + self.depthwise(x)
        x = x * torch.sigmoid(self.grow(functional.relu(self.shrink(x.mean((2, 3), keepdim=True)))))
        x = torch.cat([x[:, :16], torch.tanh(x[:, 16:])], 1)
        x = functional.interpolate(x, scale_factor=2.0)
        x = functional.max_pool2d(self.last(x), 3, 2, 1)
        return x, x.flatten(1)


def test_a_network_of_many_operators_at_open_sizes():
    module = Block().eval()
    nn.init.uniform_(module.norm.running_var, 0.5, 2.0)
    batch = torch.export.Dim("batch")
    compiled = daceml.compile(module, backward=False, dynamic_shapes=({0: batch},))
    with torch.no_grad():
        for size in (2, 5, 1):
            x = torch.randn(size, 3, 37, 50)
            actual, expected = compiled(x), module.double()(x.double())
            module.float()
            for a, e in zip(actual, expected, strict=True):
                assert a.stride() == e.contiguous().stride()
                torch.testing.assert_close(a.double(), e, rtol=1e-4, atol=1e-5)
    explanation = str(daceml.explain(compiled, torch.randn(2, 3, 37, 50)))
    assert "use_channels_last" in explanation


def test_a_weight_that_is_changed_in_place_is_seen():
    module = nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.ReLU(), nn.Conv2d(32, 16, 3)).eval()
    compiled = daceml.compile(module, backward=False)
    x = torch.randn(2, 16, 24, 24)
    with torch.no_grad():
        for change in (0.0, 0.5):
            module[2].weight.data.add_(change)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)

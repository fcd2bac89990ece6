"""pack_weights: which nodes read one, torch's numbers with NaN and infinities, and why others do not."""

from __future__ import annotations

import uuid

import pytest
import torch
from torch.nn import functional

from daceml.config import config
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.lowering import lower
from daceml.sdfg.network import Network
from daceml.toolchain.cache import digest
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.layout.channels_last import use_channels_last
from daceml.transformations.layout.packed_weights import pack_weights
from daceml.transformations.local.map_fusion import fuse_maps
from tests.support.golden import golden
from tests.support.operator_programs import parse
from tests.support.sampling import sampled
from tests.support.small_networks import build

WEIGHTS = {"W", "V", "B", "C"}
CONV = (
    "g (float[2, 16, 40, 36] X, float[32, 16, 3, 3] W, float[32] B, float[32, 1, 3, 3] V) "
    "=> (float[n, c, h, w] Y) { A = Relu (X) "
    "D = Conv <pads = [1, 1, 1, 1], strides = [2, 1]> (A, W, B) E = Relu (D) "
    "F = Conv <group = 32, dilations = [2, 1]> (E, V) Y = Relu (F) }"
)


def packed(text: str, *, watched: bool = False) -> Network:
    """A network after all passes, whose weights are the inputs W, V, B and C."""
    network = import_model(parse(text), name="network")
    network.weights |= {name: name.lower() for name in network.inputs if name in WEIGHTS}
    network.inputs = tuple(name for name in network.inputs if name not in WEIGHTS)
    lower(network)
    fuse_maps(network)
    use_channels_last(network, frozen=True)
    pack_weights(network, watched=watched)
    schedule_maps(network)
    network.sdfg.validate()
    return network


def run(network: Network, weights: dict[str, torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
    program = build(network, config().cache_folder, weights, key=digest("test", uuid.uuid4().hex))
    (first,), (second,) = program(inputs), program(inputs)
    assert torch.equal(first, second) or not first.isfinite().all()
    return first


def test_convolutions_with_bias_groups_strides_and_dilations():
    network = packed(CONV)
    assert network.passes[-2].applied == {"packed Conv": 1, "depthwise Conv": 1}
    w, b, v = torch.randn(32, 16, 3, 3), torch.randn(32), torch.randn(32, 1, 3, 3)
    x = torch.randn(2, 16, 40, 36)
    x[0, 3, 7, 8], x[1, 5, 2, 2] = float("nan"), float("inf")
    y = run(network, {"w": w, "b": b, "v": v}, x)
    hidden = functional.relu(functional.conv2d(functional.relu(x), w, b, stride=(2, 1), padding=1))
    expected = functional.relu(functional.conv2d(hidden, v, groups=32, dilation=(2, 1)))
    torch.testing.assert_close(y, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_a_product_with_and_without_a_bias():
    text = (
        "g (float[5, 200] X, float[160, 200] W, float[160] B, float[130, 160] V) => (float[m, n] Y) "
        "{ A = Gemm <transB = 1> (X, W, B) D = Tanh (A) Y = Gemm <transB = 1> (D, V) }"
    )
    network = packed(text)
    assert network.passes[-2].applied == {"packed Gemm": 2}
    w, b, v = torch.randn(160, 200) / 14, torch.randn(160), torch.randn(130, 160) / 12
    x = torch.randn(5, 200)
    x[1, 3], x[2, 7] = float("nan"), float("inf")
    y = run(network, {"w": w, "b": b, "v": v}, x)
    expected = functional.linear(torch.tanh(functional.linear(x, w, b)), v)
    torch.testing.assert_close(y, expected, equal_nan=True)


def gemm(rows: str, outputs: int = 160, attributes: str = "transB = 1", kind: str = "float") -> str:
    return (
        f"g ({kind}[{rows}, 200] X, {kind}[{outputs}, 200] W, {kind}[{outputs}] B) => ({kind}[m, n] Y) "
        f"{{ Y = Gemm <{attributes}> (X, W, B) }}"
    )


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (gemm("1"), ["1 rows"]),
        (gemm("m"), ["rows", "symbolic"]),
        (gemm("5", 8), ["1600 elements"]),
        (gemm("5", attributes="transB = 1, alpha = 2.0"), ["A W^T + c"]),
        (gemm("5", kind="double"), ["float64"]),
        (gemm("5").replace("W", "Q"), ["parameter"]),
        (
            "g (float[1, 4, 9, 9] X, float[4, 4, 3, 3] W) => (float[n, c, h, w] Y) { Y = Conv (X, W) }",
            ["channels-last"],
        ),
        (
            "g (float[1, 4, 900] X, float[4, 4, 3] W) => (float[n, c, h] Y) { Y = Conv (X, W) }",
            ["1 dimensions"],
        ),
    ],
)
def test_a_weight_that_stays(text: str, facts: list[str]):
    network = packed(text)
    assert not network.prepared
    (reason,) = [refusal.reason for refusal in network.passes[-2].refused]
    assert reason == golden()
    assert all(fact in reason for fact in facts)


@pytest.mark.parametrize(("rows", "count"), [(128, 0), (255, 0), (256, 1), (1024, 0)])
def test_a_weight_that_every_call_looks_at_must_gain_more_than_that(
    rows: int, count: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert packed(gemm(str(rows)), watched=True).passes[-2].applied.get("packed Gemm", 0) == count


def test_with_short_vectors_no_product_gains_as_much(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    network = packed(gemm("256"), watched=True)
    assert not network.prepared
    assert [refusal.reason for refusal in network.passes[-2].refused] == [golden()]
    assert packed(gemm("256")).prepared


WINDOWS = [(3, 1, 1), (3, 2, 2), (3, 1, 0), (2, 1, 1), (3, 3, 4)]
DEPTHWISE = [
    (*window, stride, channels) for window in WINDOWS for stride in (1, 2) for channels in (16, 67, 96)
]


@pytest.mark.parametrize(
    ("kernel", "dilation", "padding", "stride", "channels"),
    sampled(
        DEPTHWISE,  # kept: every window, both strides, blocks of 32 and of 16 channels, and the remainder
        (3, 1, 1, 1, 67),
        (3, 2, 2, 2, 96),
        (3, 1, 0, 1, 16),
        (2, 1, 1, 2, 67),
        (3, 3, 4, 1, 96),
        (3, 3, 4, 2, 16),
    ),
)
def test_a_depthwise_loop_of_our_own(kernel: int, dilation: int, padding: int, stride: int, channels: int):
    geometry = (
        f"group = {channels}, strides = [{stride}, {stride}], dilations = [{dilation}, {dilation}], "
        f"pads = [{padding}, {padding}, {padding}, {padding}]"
    )
    text = (
        f"g (float[2, {channels}, 65, 69] X, float[{channels}, 1, {kernel}, {kernel}] W, "
        f"float[{channels}] B) => (float[n, c, h, w] Y) "
        f"{{ A = Relu (X) D = Conv <{geometry}> (A, W, B) Y = Tanh (D) }}"
    )
    network = packed(text)
    assert network.passes[-2].applied == {"depthwise Conv": 1}
    torch.manual_seed(0)
    w, b = torch.randn(channels, 1, kernel, kernel), torch.randn(channels)
    x = torch.randn(2, channels, 65, 69)
    x[0, 1, 7, 8], x[1, 2, 2, 2] = float("nan"), float("inf")
    expected = functional.conv2d(
        functional.relu(x), w, b, stride=stride, padding=padding, dilation=dilation, groups=channels
    )
    torch.testing.assert_close(run(network, {"w": w, "b": b}, x), torch.tanh(expected), equal_nan=True)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_result_in_the_order_of_the_caller_is_not_written_by_a_loop_of_our_own(stride: int):
    first, last = (f"group = 24, strides = [{s}, {s}], pads = [1, 1, 1, 1]" for s in (1, stride))
    text = (
        "g (float[2, 24, 33, 35] X, float[24, 1, 3, 3] V, float[24, 1, 3, 3] W) => (float[n, c, h, w] Y) "
        f"{{ C = Conv <{first}> (X, V) Y = Conv <{last}> (C, W) }}"
    )
    network = packed(text)
    torch.manual_seed(0)
    v, w, x = torch.randn(24, 1, 3, 3), torch.randn(24, 1, 3, 3), torch.randn(2, 24, 33, 35)
    inner = functional.conv2d(x, v, padding=1, groups=24)
    expected = functional.conv2d(inner, w, stride=stride, padding=1, groups=24)
    torch.testing.assert_close(run(network, {"v": v, "w": w}, x), expected)

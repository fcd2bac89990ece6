"""Gradients of convolutions and transposed ones, by loops and by torch's kernel."""

from __future__ import annotations

import functools
from typing import Any

import dace
import pytest
import torch
from torch.nn import functional

from daceml.codegen.driver import driver_text
from daceml.codegen.planning.plan import make_plan
from daceml.codegen.planning.steps import Storage
from daceml.onnx_ops.external import external_call
from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.nodes import node_class
from tests.autodiff.cases import Case, check_gradients, random
from tests.support.golden import golden
from tests.support.node_gradients import compiled, network_of
from tests.support.sampling import sampled

# input, weight, ONNX attributes
PLAIN: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 11), (4, 3, 3), {"pads": [1, 1]}),
    ((2, 4, 10), (4, 2, 3), {"group": 2, "strides": [3], "dilations": [2]}),
    ((2, 4, 6, 10), (6, 2, 3, 2), {"group": 2, "strides": [2, 1]}),
    ((2, 3, 9, 7), (5, 3, 3, 3), {"dilations": [2, 2], "pads": [2, 1, 2, 1]}),
    ((2, 4, 8, 7), (8, 1, 3, 3), {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 3, 5, 6), (3, 1, 5, 1), {"group": 3, "pads": [2, 0, 2, 0]}),
    ((2, 2, 7, 5), (3, 2, 1, 1), {"strides": [3, 2]}),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 1), {"strides": [1, 2, 1], "pads": [0, 1, 0, 0, 1, 0]}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((2, 2, 7, 6), (3, 2, 3, 3), {"auto_pad": "SAME_UPPER"}),
]
UNEVEN: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 2, 5, 6), (3, 2, 3, 3), {"pads": [2, 0, 0, 1]}),
    ((1, 2, 6, 5), (2, 2, 2, 2), {"auto_pad": "SAME_LOWER"}),
    ((1, 2, 6, 5), (2, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
]


def convolve(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **attributes: Any
) -> torch.Tensor:
    space = x.dim() - 2
    strides = attributes.get("strides", [1] * space)
    dilations = attributes.get("dilations", [1] * space)
    pads = attributes.get("pads", [0] * 2 * space)
    if "auto_pad" in attributes:
        totals = [
            max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
        ]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = small + large if attributes["auto_pad"] == "SAME_UPPER" else large + small
    x = functional.pad(x, [p for d in reversed(range(space)) for p in (pads[d], pads[space + d])])
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[space - 1]
    return function(x, w, b, strides, 0, dilations, attributes.get("group", 1))


def case(
    x: Any, w: Any, attributes: dict[str, Any], dtype: torch.dtype, bias: bool = True, **options: Any
) -> Case:
    operands = {"X": random(*x, dtype=dtype, seed=1), "W": random(*w, dtype=dtype, seed=2)}
    if bias:
        operands["B"] = random(w[0], dtype=dtype, seed=3)
    function = functools.partial(convolve, **attributes)
    return Case("Conv", function, operands, attributes=attributes, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_convolution(dtype: torch.dtype):
    cases = [case(*row, dtype, bias=i % 2 == 0) for i, row in enumerate(PLAIN)]
    # small depthwise convolutions in float32 are quicker as loops
    loops = {"native:rule"} if dtype is torch.float32 else set[str]()
    assert set(check_gradients(cases).chosen) == {"aten:convolution"} | loops
    if dtype is torch.float64:
        assert set(check_gradients(cases, ("native",)).chosen) == {"native:rule"}


def test_sides_padded_differently_are_left_to_loops():
    found = check_gradients([case(*row, torch.float64) for row in UNEVEN])
    assert set(found.chosen) == {"native:rule"}
    assert found.refusals[0]["aten:convolution"] == golden()
    assert "pads [2, 0, 0, 1]" in found.refusals[0]["aten:convolution"]


@pytest.mark.parametrize(
    "wanted",
    sampled([["X"], ["W"], ["B"], ["X", "B"], ["W", "B"], ["X", "W"]], ["B"], ["W", "B"], ["X", "W"]),
)
def test_any_subset_of_the_gradients(wanted: list[str]):
    cases = [case(*PLAIN[i], torch.float32) for i in (2, 4)]
    assert set(check_gradients(cases, wanted=wanted).chosen) == {"aten:convolution"}
    check_gradients(cases[:1], ("native",), wanted)


def test_half_precision():
    cases = [case(*PLAIN[2], dtype) for dtype in (torch.float16, torch.bfloat16)]
    check_gradients(cases)
    check_gradients(cases, ("native",))


def test_a_symbolic_batch():
    cases = [
        case((7, 4, 6, 5), (6, 2, 3, 2), {"group": 2, "strides": [2, 1]}, torch.float64, symbolic={7: "N"})
    ]
    assert check_gradients(cases).chosen == ["aten:convolution"]
    assert check_gradients(cases, ("native",)).chosen == ["native:rule"]


def test_symbolic_sizes_are_left_to_torch():
    sizes = {13: "H", 11: "H - 2", 7: "N"}
    cases = [case((7, 4, 13, 5), (6, 4, 3, 2), {}, torch.float64, symbolic=sizes)]
    assert check_gradients(cases).chosen == ["aten:convolution"]


def test_a_small_depthwise_convolution_is_left_to_loops():
    found = check_gradients([case((1, 6, 8, 5), (6, 1, 3, 3), {"group": 6}, torch.float32)])
    assert found.refusals[0]["aten:convolution"] == golden()
    assert "972 products" in found.refusals[0]["aten:convolution"]


def test_gradients_that_are_read_again_stay_in_torchs_buffers():
    (node,) = case(*PLAIN[2], torch.float64).backward()
    network, feeds = network_of([node])
    results = network.outputs
    for array in results:
        network.sdfg.arrays[array].transient = True
        network.sdfg.add_array(f"{array}_negated", network.sdfg.arrays[array].shape, dace.float64)
        negate = node_class("Neg")(inputs=["X"], outputs=["Y"], onnx_name=array)
        (read,) = [n for n in network.state.data_nodes() if n.data == array]
        write = network.state.add_access(f"{array}_negated")
        network.state.add_edge(read, None, negate, "X", network.sdfg.make_array_memlet(array))
        network.state.add_edge(negate, "Y", write, None, network.sdfg.make_array_memlet(write.data))
    network.outputs = tuple(f"{array}_negated" for array in results)
    lower(network)
    plan = make_plan(network, external_call)
    assert [plan.locations[a].storage for a in results] == [Storage.FRESH] * 3
    assert "memcpy" not in driver_text(plan, dict.fromkeys([k.name for k in plan.kernels], ()))
    assert {a for released in plan.releases.values() for a in released} == set(results)
    expected = case(*PLAIN[2], torch.float64).expected
    for array, value in zip(results, compiled(network)(feeds), strict=True):
        torch.testing.assert_close(-value, expected[array.removeprefix("n0_d")])


def test_an_empty_batch_has_gradients_of_zero():
    found = check_gradients([case((0, 2, 5, 6), (3, 2, 3, 3), {}, torch.float64)])
    assert found.chosen == ["native:rule"]


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5), (3, 4, 3), {"strides": [2], "pads": [1, 1]}),
    ((2, 4, 5, 4), (4, 3, 3, 2), {"group": 2, "strides": [2, 3], "output_padding": [1, 2]}),
    ((2, 4, 4, 3), (4, 1, 3, 3), {"group": 4, "pads": [1, 0, 1, 0], "dilations": [1, 2]}),
    ((1, 2, 3, 4, 2), (2, 3, 2, 1, 3), {"strides": [2, 1, 1]}),
]


def transposed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **a: Any) -> torch.Tensor:
    space = x.dim() - 2
    function = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[
        space - 1
    ]
    pads, more = a.get("pads", [0] * 2 * space), a.get("output_padding", [0] * space)
    y = function(x, w, b, a.get("strides", 1), pads[:space], more, a.get("group", 1), a.get("dilations", 1))
    # what is cut off at the end beyond what is at the begin
    cut = [pads[space + d] - pads[d] for d in range(space)]
    return functional.pad(y, [p for d in reversed(range(space)) for p in (0, -cut[d])])


def transposed_case(
    x: Any, w: Any, attributes: dict[str, Any], dtype: torch.dtype, bias: bool = True
) -> Case:
    operands = {"X": random(*x, dtype=dtype, seed=1), "W": random(*w, dtype=dtype, seed=2)}
    if bias:
        operands["B"] = random(w[1] * attributes.get("group", 1), dtype=dtype, seed=3)
    function = functools.partial(transposed, **attributes)
    return Case("ConvTranspose", function, operands, attributes=attributes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_transposed_convolution(dtype: torch.dtype):
    cases = [transposed_case(*row, dtype, bias=i % 2 == 0) for i, row in enumerate(TRANSPOSED)]
    assert set(check_gradients(cases).chosen) == {"aten:convolution"}
    check_gradients(cases[:1], wanted=["W"])
    if dtype is torch.float64:
        uneven = transposed_case((2, 2, 4, 3), (2, 3, 3, 3), {"strides": [2, 2], "pads": [0, 1, 1, 2]}, dtype)
        assert set(check_gradients([*cases, uneven], ("native",)).chosen) == {"native:rule"}

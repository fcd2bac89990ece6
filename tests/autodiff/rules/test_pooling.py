"""Gradients of pooling: maxima go to one element each, averages are shared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import daceml
from tests.autodiff.cases import Case, check_gradients, check_results, random
from tests.support.golden import golden

MAXIMA: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 11), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((2, 3, 8, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 3, 9, 7), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    ((1, 2, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ((1, 2, 9, 8), {"kernel_shape": [3, 2], "strides": [1, 2], "dilations": [2, 3]}),
    ((1, 2, 9, 8), {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2, 2, 2, 2]}),
    ((1, 2, 5, 6, 4), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1], "pads": [0, 1, 1, 0, 1, 1]}),
    ((1, 1, 1, 1), {"kernel_shape": [1, 1], "strides": [1, 1]}),
]


def window(x: torch.Tensor, a: dict[str, Any]) -> dict[str, Any]:
    space = x.dim() - 2
    return {
        "kernel_size": a["kernel_shape"],
        "stride": a.get("strides", [1] * space),
        "padding": a.get("pads", [0] * space)[:space],
        "ceil_mode": bool(a.get("ceil_mode")),
    }


def maxima(x: torch.Tensor, attributes: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    space = x.dim() - 2
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[space - 1]
    dilation = attributes.get("dilations", [1] * space)
    return function(x, **window(x, attributes), dilation=dilation, return_indices=True)


def max_case(x: torch.Tensor, attributes: dict[str, Any], **options: Any) -> Case:
    indices = maxima(x, attributes)[1]
    # ONNX counts from the begin of the tensor, torch from that of the plane
    planes = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.dim() - 2))
    kept = {"Indices": indices + planes * x[0, 0].numel()}
    return Case(
        "MaxPool", lambda x: maxima(x, attributes)[0], {"X": x}, kept=kept, attributes=attributes, **options
    )


def special(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Many equal numbers, NaN and infinities."""
    x = random(*shape, dtype=torch.float64, seed=4).mul(1.5).round().to(dtype)
    chosen = random(*shape, seed=5)
    x[chosen > 1.6] = torch.nan
    x[chosen < -0.8] = -torch.inf
    x[..., :3] = -torch.inf
    return x


def max_cases(values: Callable[..., torch.Tensor]) -> list[Case]:
    """Of float64, and two of float32: of any values these are the same programs."""
    kinds = [(torch.float64, row) for row in MAXIMA] + [(torch.float32, row) for row in MAXIMA[1:3]]
    return [max_case(values(shape, dtype), attributes) for dtype, (shape, attributes) in kinds]


def test_max_pooling():
    cases = max_cases(lambda shape, dtype: random(*shape, dtype=dtype))
    assert set(check_results(cases, ("native",)).chosen) == {"native:direct"}
    assert set(check_gradients(cases, ("native",)).chosen) == {"native:rule"}
    check_results(cases)
    check_gradients(cases)


def test_ties_go_to_the_first_maximum_and_to_the_last_nan():
    cases = max_cases(special)
    check_results(cases, ("native",))
    check_gradients(cases, ("native",))
    check_results(cases)
    check_gradients(cases)


def test_max_pooling_in_half_precision():
    cases = [
        max_case(special(MAXIMA[1][0], dtype), MAXIMA[1][1]) for dtype in (torch.float16, torch.bfloat16)
    ]
    check_results(cases)
    check_gradients(cases)


AVERAGES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 11), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((2, 3, 8, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 3, 9, 7), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 3, 9, 7), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0], "count_include_pad": 1}),
    ((1, 2, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    (
        (1, 2, 8, 7),
        {
            "kernel_shape": [3, 3],
            "strides": [2, 2],
            "pads": [1, 1, 1, 1],
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
    ),
    ((1, 2, 9, 8), {"kernel_shape": [3, 3], "strides": [1, 1]}),
    ((1, 2, 9, 8), {"kernel_shape": [2, 1], "strides": [3, 4]}),
    ((1, 2, 5, 6, 4), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1], "pads": [0, 1, 1, 0, 1, 1]}),
    ((1, 1, 1, 1), {"kernel_shape": [1, 1], "strides": [1, 1]}),
    # one window, which padding has moved over a part of the image
    ((1, 2, 3, 3), {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1]}),
]


def average(x: torch.Tensor, attributes: dict[str, Any]) -> torch.Tensor:
    function = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[x.dim() - 3]
    return function(x, **window(x, attributes), count_include_pad=bool(attributes.get("count_include_pad")))


def average_case(shape: Any, attributes: dict[str, Any], dtype: torch.dtype, **options: Any) -> Case:
    function = functools.partial(average, attributes=attributes)
    return Case("AveragePool", function, {"X": random(*shape, dtype=dtype)}, attributes=attributes, **options)


def test_average_pooling():
    cases = [average_case(*row, torch.float64) for row in AVERAGES]
    cases += [average_case(*row, torch.float32) for row in AVERAGES[1:4]]
    check_gradients(cases)
    check_gradients(cases, ("native",))


def test_average_pooling_in_half_precision():
    check_gradients(
        [average_case(*AVERAGES[4], dtype) for dtype in (torch.float16, torch.bfloat16)], ("native",)
    )


def test_pooling_of_a_symbolic_batch():
    x = random(7, 3, 8, 6)
    cases = [
        max_case(x, MAXIMA[1][1], symbolic={7: "N"}),
        average_case((7, 3, 9, 8), AVERAGES[4][1], torch.float64, symbolic={7: "N"}),
        Case("GlobalAveragePool", lambda x: x.mean((2, 3), keepdim=True), {"X": x}, symbolic={7: "N"}),
    ]
    check_gradients(cases, ("native",))
    check_gradients(cases)


def test_averages_over_symbolic_sizes_are_torchs():
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    case = average_case((2, 3, 11, 13), attributes, torch.float64, symbolic={11: "H", 13: "W"})
    found = check_gradients([case])
    assert found.chosen == ["aten:average_pool"]
    assert found.refusals[0]["native:rule"] == golden()
    assert "symbolic" in found.refusals[0]["native:rule"]
    cases = [average_case(*row, torch.float64) for row in AVERAGES if len(row[0]) > 3]
    assert set(check_gradients(cases, ("aten",)).chosen) == {"aten:average_pool"}


def test_pooling_over_all_positions():
    for dtype in (torch.float64, torch.float32):
        ties = random(2, 3, 5, 4, seed=2).round().to(dtype)
        ties[0, 1, 2, 3] = ties[0, 1, 3, 1] = torch.nan
        cases = [
            Case(
                "GlobalAveragePool",
                lambda x: x.mean((2, 3), keepdim=True),
                {"X": random(2, 3, 5, 4, dtype=dtype)},
            ),
            Case("GlobalMaxPool", lambda x: functional.adaptive_max_pool2d(x, 1), {"X": ties}),
            Case(
                "GlobalMaxPool",
                lambda x: functional.adaptive_max_pool1d(x, 1),
                {"X": random(2, 3, 7, dtype=dtype)},
            ),
        ]
        check_gradients(cases)


def test_adaptive_maxima_share_elements_and_tie():
    """Compiled as a whole: the forward pass says where its maxima were."""

    class Adaptive(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return functional.adaptive_max_pool2d(x, (3, 2)), functional.adaptive_max_pool1d(y, 4)

    given = [random(2, 3, 7, 5).round().requires_grad_(), random(3, 6).round().requires_grad_()]
    compiled: Any = daceml.compile(Adaptive())
    found: list[tuple[torch.Tensor, ...]] = []
    for module in (Adaptive(), compiled):
        results = module(*given)
        cotangents = [torch.arange(float(r.numel()), dtype=r.dtype).view(r.shape) for r in results]
        found.append(torch.autograd.grad(results, given, cotangents))
    assert compiled.session.variants, "it runs eagerly"
    assert all(map(torch.equal, *found))

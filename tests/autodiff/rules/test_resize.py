"""Gradients of interpolation, compared with those of torch's own interpolation."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.autodiff.cases import Case, check_gradients, check_results, random

HALF_PIXEL = {"coordinate_transformation_mode": "pytorch_half_pixel"}
ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
CORNERS = {"coordinate_transformation_mode": "align_corners"}

# input, output, torch's options, ONNX attributes
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], dict[str, Any]]] = [
    ((2, 3, 4, 5), (8, 15), {"mode": "nearest"}, {"mode": "nearest", **ASYMMETRIC}),
    ((2, 3, 4, 5), (7, 3), {"mode": "nearest"}, {"mode": "nearest", **ASYMMETRIC}),
    ((2, 3, 5), (9,), {"mode": "linear"}, {"mode": "linear", **HALF_PIXEL}),
    ((2, 3, 4, 5), (8, 10), {"mode": "bilinear"}, {"mode": "linear", **HALF_PIXEL}),
    ((2, 3, 7, 6), (4, 13), {"mode": "bilinear", "align_corners": True}, {"mode": "linear", **CORNERS}),
    ((2, 3, 5, 4), (7, 9), {"mode": "bicubic"}, {"mode": "cubic", **HALF_PIXEL}),
    ((1, 2, 3, 4, 5), (5, 4, 7), {"mode": "trilinear"}, {"mode": "linear", **HALF_PIXEL}),
    ((1, 1, 1, 1), (3, 2), {"mode": "bilinear"}, {"mode": "linear", **HALF_PIXEL}),
]


def case(
    shape: Any, size: Any, options: dict[str, Any], attributes: dict[str, Any], dtype: torch.dtype
) -> Case:
    sizes = torch.tensor([*shape[:2], *size])
    return Case(
        "Resize",
        functools.partial(functional.interpolate, size=size, **options),
        {"X": random(*shape, dtype=dtype)},
        given={"sizes": sizes},
        constants=["sizes"],
        attributes=attributes,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_interpolation(dtype: torch.dtype):
    cases = [case(*row, dtype) for row in (CASES if dtype is torch.float64 else CASES[:2] + CASES[3:5])]
    check_results(cases, ("native",))
    assert set(check_gradients(cases).chosen) == {"native:rule"}


def test_interpolation_by_a_scale():
    x = random(2, 3, 4, 5)
    kept = {"scales": torch.tensor([1.0, 1.0, 1.7, 2.4])}
    function = functools.partial(functional.interpolate, scale_factor=(1.7, 2.4), mode="bilinear")
    attributes = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    check_gradients(
        [Case("Resize", function, {"X": x}, given=kept, constants=["scales"], attributes=attributes)]
    )


def test_half_precision_adds_in_float32():
    # torch rounds after each addition: some units in the last place more
    bounds = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
    check_gradients([case(*CASES[3], dtype) for dtype in bounds], bounds=bounds)


def test_a_symbolic_batch():
    shape, size, options, attributes = CASES[3]
    x = random(7, *shape[1:])
    sizes = torch.tensor([*x.shape[:2], *size])
    check_gradients(
        [
            Case(
                "Resize",
                functools.partial(functional.interpolate, size=size, **options),
                {"X": x},
                given={"sizes": sizes},
                constants=["sizes"],
                attributes=attributes,
                symbolic={7: "N"},
            )
        ]
    )

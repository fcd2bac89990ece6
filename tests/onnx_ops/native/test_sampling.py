"""Samples of images at places that are data, against torch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises

TORCH = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def sampled(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, align: int, version: int = 20) -> Case:
    with torch.no_grad():
        expected = functional.grid_sample(
            torch.from_numpy(x), torch.from_numpy(grid), TORCH[mode], padding, bool(align)
        ).numpy()
    attributes = {
        "mode": mode if version >= 20 else TORCH[mode],
        "padding_mode": padding,
        "align_corners": align,
    }
    return Case(
        op="GridSample",
        inputs=[x, grid],
        attributes=attributes,
        expected=[expected],
        version=version,
        rtol=1e-4,
        atol=1e-4,
    )


def affine(theta: np.ndarray, *size: int, align: int) -> Case:
    grid = functional.affine_grid(torch.from_numpy(theta), list(size), bool(align)).numpy()
    return Case(
        op="AffineGrid",
        inputs=[theta, np.array(size)],
        constants=[1],
        attributes={"align_corners": align},
        expected=[grid],
        version=20,
    )


X, GRID = random(2, 3, 5, 4), random(2, 3, 6, 2, seed=1, scale=1.2)
X3, GRID3 = random(1, 2, 3, 4, 5), random(1, 2, 3, 2, 3, seed=1, scale=1.2)
FAR = np.array([[[[1e30, -1e30], [0.5, 1e20]]]], np.float32)
NOWHERE = np.array([[[[np.inf, 0], [np.nan, 0.3], [-np.inf, np.nan], [0.1, np.nan]]]], np.float32)
CASES = {
    **{
        f"{mode}, {padding}, align_corners={align}": sampled(X, GRID, mode, padding, align)
        for mode, padding, align in product(TORCH, ("zeros", "border", "reflection"), (0, 1))
    },
    **{
        f"3-D {mode}, {padding}": sampled(X3, GRID3, mode, padding, align)
        for mode, padding, align in (
            ("linear", "zeros", 0),
            ("nearest", "border", 1),
            ("linear", "reflection", 0),
        )
    },
    "version 16": sampled(X, GRID, "linear", "zeros", 0, version=16),
    "one element": sampled(X[:, :, :1, :1], GRID, "linear", "reflection", 0),
    "one element, aligned": sampled(X[:, :, :1, :1], GRID, "nearest", "border", 1),
    "float64": sampled(X.astype(np.float64), GRID.astype(np.float64), "cubic", "border", 1),
    "no places": sampled(X, GRID[:, :0], "linear", "zeros", 0),
    **{
        f"no numbers, {mode}, {padding}": sampled(X[:1, :, :, :3], NOWHERE, mode, padding, 0)
        for mode, padding in product(TORCH, ("zeros", "border", "reflection"))
    },
    "far, border": sampled(X[:1], FAR, "linear", "border", 0),
    "far, zeros": sampled(X[:1], FAR, "cubic", "zeros", 0),
    "an affine grid": affine(random(2, 2, 3), 2, 1, 3, 4, align=0),
    "an aligned grid": affine(random(2, 2, 3), 2, 1, 3, 4, align=1),
    "a grid in space": affine(random(1, 3, 4), 1, 1, 2, 3, 4, align=0),
    "a grid of one place": Case(
        op="AffineGrid",
        inputs=[random(1, 2, 3), np.array([1, 1, 1, 1])],
        constants=[1],
        version=20,
        attributes={"align_corners": 1},
        expected=[random(1, 2, 3)[:, None, None, :, 2]],
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_whole_numbers_are_not_interpolated() -> None:
    case = sampled(X, GRID, "linear", "zeros", 0)
    case.inputs = [X.astype(np.int32), GRID]
    case.expected = [np.zeros((2, 3, 3, 6), np.int32)]
    with raises(NoImplementationError, "GridSample", "int32", "float32"):
        lowered(case)

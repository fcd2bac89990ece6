"""Products and convolutions of quantized numbers, against whole-number arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered
from tests.support.golden import raises

DRAW = np.random.default_rng(3)


def whole(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return DRAW.integers(limits.min, limits.max + 1, shape).astype(dtype)


def product(a: np.ndarray, b: np.ndarray, *zeros: np.ndarray) -> Case:
    za, zb = (z.astype(np.int64) for z in (*zeros, np.array(0), np.array(0))[:2])
    za = za[..., None] if za.ndim == 1 else za
    expected = ((a - za) @ (b - zb)).astype(np.int32)
    return Case(op="MatMulInteger", inputs=[a, b, *zeros], expected=[expected])


def convolution(x: np.ndarray, w: np.ndarray, zx: int, zw: np.ndarray, **options: int) -> Case:
    along = zw.astype(np.float64).reshape(-1, 1, 1, 1)
    a, b = torch.from_numpy(x.astype(np.float64) - zx), torch.from_numpy(w - along)
    pads = options.get("pads", 0)
    expected = functional.conv2d(
        a, b, stride=options.get("stride", 1), padding=pads, groups=options.get("group", 1)
    )
    attributes = {
        "pads": [pads] * 4,
        "strides": [options.get("stride", 1)] * 2,
        "group": options.get("group", 1),
    }
    return Case(
        op="ConvInteger",
        inputs=[x, w, np.array(zx, x.dtype), zw],
        attributes=attributes,
        expected=[expected.numpy().astype(np.int32)],
    )


A, B = whole(2, 3, 5), whole(5, 4, dtype=np.int8)
X, W = whole(2, 4, 5, 6), whole(6, 4, 3, 2, dtype=np.int8)
SCALES = np.array([0.5, 0.25, 1, 2, 0.125, 3], np.float32) / 300


def requantized() -> Case:
    total = functional.conv2d(
        torch.from_numpy(X.astype(np.float64) - 7), torch.from_numpy(W.astype(np.float64))
    )
    bias = np.arange(6, dtype=np.int32) * 100
    value = (total.numpy() + bias.reshape(-1, 1, 1)) * (
        0.5 * SCALES.reshape(-1, 1, 1).astype(np.float64) / 0.25
    )
    return Case(
        op="QLinearConv",
        inputs=[
            X,
            np.float32(0.5),
            np.array(7, np.uint8),
            W,
            SCALES,
            np.zeros(6, np.int8),
            np.float32(0.25),
            np.array(100, np.uint8),
            bias,
        ],
        expected=[np.clip(np.rint(value) + 100, 0, 255).astype(np.uint8)],
        atol=1,  # a half-way case that float32 rounds to the other side
    )


def quantized_product() -> Case:
    rows, columns = np.array([0.5, 0.25, 1], np.float32) / 50, np.array([1, 2, 0.5, 0.25], np.float32)
    total = (A.astype(np.int64) - 3) @ (B - np.arange(4))
    value = total * (rows[:, None].astype(np.float64) * columns / 2)
    return Case(
        op="QLinearMatMul",
        inputs=[
            A,
            rows,
            np.full(3, 3, np.uint8),
            B,
            columns,
            np.arange(4).astype(np.int8),
            np.float32(2),
            np.array(10, np.int8),
        ],
        expected=[np.clip(np.rint(value) + 10, -128, 127).astype(np.int8)],
        atol=1,
    )


CASES = {
    "batch": product(A, B, np.array(12, np.uint8), np.array(-3, np.int8)),
    "rows and columns": product(A[0], B, np.array([1, 200, 3], np.uint8), np.array([1, -2, 3, 4], np.int8)),
    "no zero points": product(A, B),
    "vectors": product(A[0, 0], B[:, 0], np.array(12, np.uint8)),
    "inner size 0": product(A[..., :0], B[:0]),
    "convolution": convolution(X, W, 7, np.array(0, np.int8)),
    "padded with its zero point": convolution(X, W, 7, np.array(3, np.int8), pads=1, stride=2),
    "a zero point for each channel": convolution(X, W, 0, np.arange(6).astype(np.int8)),
    "groups": convolution(X, W[:, :2], 250, np.array(-3, np.int8), group=2, pads=1),
    "requantized convolution": requantized(),
    "requantized product": quantized_product(),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_a_row_has_one_zero_point() -> None:
    case = product(A[0, 0], B)
    case.inputs = [*case.inputs, np.zeros(5, np.uint8)]
    with raises(NoImplementationError, "MatMulInteger", "zero points"):
        lowered(case)

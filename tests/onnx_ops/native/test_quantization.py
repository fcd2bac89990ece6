"""Quantization per tensor, per axis and by blocks; half-way cases, NaN and infinities."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises

X = random(3, 6, 4, scale=200)
HALVES = np.arange(-6, 7, dtype=np.float32) / 2
EXTREMES = np.array([np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0, 300.0], np.float32)


def quantized(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray, *, version: int | None = None, **attributes: int
) -> Case:
    """Numbers in float64, where no product is rounded."""
    s, z = (np.asarray(v).astype(np.float64) for v in (scale, zero))
    if s.ndim == 1 and s.size > 1:
        along = [1] * x.ndim
        along[attributes.get("axis", 1)] = s.size
        s, z = s.reshape(along), z.reshape(along)
    elif s.ndim > 1:
        axis = attributes["axis"]
        take = np.arange(x.shape[axis]) // attributes["block_size"]
        s, z = s.take(take, axis), z.take(take, axis)
    limits = np.iinfo(zero.dtype)
    expected = np.clip(np.rint((x / s.astype(x.dtype)).astype(np.float64)) + z, limits.min, limits.max)
    return Case(
        op="QuantizeLinear",
        inputs=[x, scale, zero],
        attributes=attributes,
        expected=[expected.astype(zero.dtype)],
        version=version,
    )


CASES = {
    **{
        f"per tensor, {np.dtype(t).name}": quantized(X, np.float32(1.7), np.array(z, t))
        for t, z in ((np.int8, -3), (np.uint8, 130), (np.int16, 7), (np.uint16, 9))
    },
    "to the even number": quantized(HALVES, np.float32(1), np.array(1, np.int8)),
    "saturated": quantized(EXTREMES, np.float32(2), np.array(5, np.uint8)),
    "per axis": quantized(X, np.array([1, 2, 0.5, 3, 1, 9], np.float32), np.arange(6).astype(np.int8)),
    "negative axis": quantized(
        X, np.array([1, 2, 0.5, 3], np.float32), np.arange(4).astype(np.uint8), axis=-1
    ),
    "blocks": quantized(X, np.abs(random(3, 3, 4)) + 0.5, np.zeros((3, 3, 4), np.int8), axis=1, block_size=2),
    "an odd last block": quantized(
        X[:, :5], np.abs(random(3, 3, 4)) + 0.5, np.ones((3, 3, 4), np.uint8), axis=1, block_size=2
    ),
    "whole numbers": Case(
        op="QuantizeLinear",
        inputs=[np.array([-7, 3, 900], np.int32), np.float32(2), np.array(0, np.int8)],
        expected=[np.array([-4, 2, 127], np.int8)],
    ),
    "no zero point": Case(
        op="QuantizeLinear",
        inputs=[np.array([-7, 3, 900], np.float32), np.float32(2)],
        expected=[np.array([0, 2, 255], np.uint8)],
    ),
    "version 13": quantized(
        X[:, :, 0], np.array([1, 2, 0.5, 3, 1, 9], np.float32), np.arange(6).astype(np.int8), version=13
    ),
    "nothing": quantized(X[:0], np.float32(1.7), np.array(0, np.int8)),
    "float16": Case(
        op="QuantizeLinear",
        inputs=[np.array([-7, 3.5], np.float16), np.float16(2), np.array(0, np.int8)],
        expected=[np.array([-4, 2], np.int8)],
    ),
    "dequantize": Case(
        op="DequantizeLinear",
        inputs=[
            np.array([[0, 255], [7, 130]], np.uint8),
            np.array([2, 0.5], np.float32),
            np.array([255, 0], np.uint8),
        ],
        expected=[np.array([[-510, 127.5], [-496, 65]], np.float32)],
    ),
    "dequantize int32": Case(
        op="DequantizeLinear",
        inputs=[np.array([-(2**30), 3], np.int32), np.float32(0.5)],
        expected=[np.array([-(2.0**29), 1.5], np.float32)],
    ),
    "dequantize to bfloat16": Case(
        op="DequantizeLinear",
        inputs=[np.array([3, -5], np.int8), np.array(0.5, ml_dtypes.bfloat16)],
        expected=[np.array([1.5, -2.5], ml_dtypes.bfloat16)],
    ),
    "dequantize blocks": Case(
        op="DequantizeLinear",
        inputs=[
            np.arange(10).reshape(2, 5).astype(np.int8),
            np.array([[1, 2, 3], [4, 5, 6]], np.float32),
            np.ones((2, 3), np.int8),
        ],
        attributes={"axis": 1, "block_size": 2},
        expected=[np.array([[-1, 0, 2, 4, 9], [16, 20, 30, 35, 48]], np.float32)],
    ),
    "by range": Case(op="DynamicQuantizeLinear", inputs=[random(3, 5)], outputs=3),
    "by range, positive": Case(
        op="DynamicQuantizeLinear", inputs=[np.array([1, 2, 7], np.float32)], outputs=3
    ),
    "by range, zeros": Case(
        op="DynamicQuantizeLinear",
        inputs=[np.zeros(3, np.float32)],
        expected=[np.zeros(3, np.uint8), np.float32(1), np.array(0, np.uint8)],
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


@pytest.mark.parametrize(
    ("scale", "attributes", "facts"),
    [
        (np.ones(5, np.float32), {}, ["5 scales", "6 elements", "axis 1"]),
        (np.ones((3, 4), np.float32), {}, ["rank 2", "rank 3"]),
        (np.ones((3, 2, 4), np.float32), {"block_size": 2}, ["2 blocks", "6 elements"]),
    ],
)
def test_scales_that_do_not_fit_are_refused(
    scale: np.ndarray, attributes: dict[str, int], facts: list[str]
) -> None:
    inputs = [X, scale, np.zeros(scale.shape, np.int8)]
    case = Case(op="QuantizeLinear", inputs=inputs, attributes=attributes, expected=[X.astype(np.int8)])
    with raises(NoImplementationError, "QuantizeLinear", *facts):
        lowered(case)

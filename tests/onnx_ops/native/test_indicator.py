"""One-hot vectors of positions and of the largest element."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

VALUES = np.array([2, 5], np.float32)
OUTSIDE = np.array([[0, 3], [-1, -4], [4, -5]])


def one_hot(indices: np.ndarray, depth: int, axis: int, values: np.ndarray = VALUES) -> Case:
    place = np.arange(depth)
    wrapped = np.where(indices < 0, indices + depth, indices).astype(np.int64)
    hot = np.moveaxis(wrapped[..., None] == place, -1, axis)
    return Case(
        op="OneHot",
        inputs=[indices, np.array(depth), values],
        constants=[1],
        attributes={"axis": axis},
        expected=[np.where(hot, values[1], values[0])],
    )


TIES = np.array([[1, 3, 3], [np.nan, 2, 9], [-np.inf, -np.inf, -np.inf]], np.float32)
FIRST = np.array([[0, 1, 0], [1, 0, 0], [1, 0, 0]], np.float32)
CASES = {
    "last": one_hot(OUTSIDE, 4, -1),
    "first": one_hot(OUTSIDE, 4, 0),
    "negative": one_hot(OUTSIDE, 4, -2),
    "numbers with a point": one_hot(OUTSIDE.astype(np.float32), 4, 1, np.array([0, 1], np.int64)),
    "rank 0": one_hot(np.array(2), 3, 0),
    "depth 1": one_hot(np.array([0, -1, 1]), 1, -1),
    "largest": Case(op="Hardmax", inputs=[TIES], expected=[FIRST]),
    "along 0": Case(op="Hardmax", inputs=[random(4, 3, 2)], attributes={"axis": 0}),
    "one element": Case(op="Hardmax", inputs=[random(3, 1)], expected=[np.ones((3, 1), np.float32)]),
    "no elements": Case(op="Hardmax", inputs=[random(3, 0)], expected=[random(3, 0)]),
    "before version 13": Case(
        op="Hardmax",
        inputs=[np.array([[[1, 2], [3, 0]], [[9, 2], [3, 9]]], np.float32)],
        attributes={"axis": 1},
        expected=[np.array([[[0, 0], [1, 0]], [[1, 0], [0, 0]]], np.float32)],
        version=11,
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()

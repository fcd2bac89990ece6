"""Pooling against torch and the ONNX reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.onnx_ops.native.single_node import Case, Outcome, random
from tests.support.sampling import slowed

t = torch.from_numpy
X = random(2, 3, 7, 10)
IMAGE = random(1, 2, 5, 6)


def by_columns(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maxima of 2 x 2, and where each is in X with its planes transposed."""
    y, index = functional.max_pool2d(t(x), 2, return_indices=True)
    planes, height, width = x.shape[0] * x.shape[1], x.shape[2], x.shape[3]
    first = torch.arange(planes).reshape(*x.shape[:2], 1, 1) * height * width
    return y.numpy(), (first + index % width * height + index // width).numpy()


def average(
    x: np.ndarray, kernel: list[int], stride: list[int], pad: list[int], ceil: bool, include: bool
) -> Case:
    expected = functional.avg_pool2d(
        t(x), kernel, stride, pad, ceil_mode=ceil, count_include_pad=include
    ).numpy()
    attributes = {
        "kernel_shape": kernel,
        "strides": stride,
        "pads": [*pad, *pad],
        "ceil_mode": int(ceil),
        "count_include_pad": int(include),
    }
    return Case(op="AveragePool", inputs=[x], attributes=attributes, expected=[expected])


CASES = {
    "max": Case(
        op="MaxPool",
        inputs=[X],
        attributes={"kernel_shape": [3, 2], "strides": [2, 2]},
        expected=[functional.max_pool2d(t(X), (3, 2), 2).numpy()],
    ),
    "max padded": Case(
        op="MaxPool",
        inputs=[X - 9],
        attributes={"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1] * 4},
        expected=[functional.max_pool2d(t(X - 9), 3, (2, 1), 1).numpy()],
    ),
    "max ceil": Case(
        op="MaxPool",
        inputs=[X - 9],
        attributes={"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1},
        expected=[functional.max_pool2d(t(X - 9), (2, 3), (2, 3), ceil_mode=True).numpy()],
    ),
    "max dilated": Case(
        op="MaxPool",
        inputs=[X],
        attributes={"kernel_shape": [2, 3], "dilations": [3, 2], "strides": [1, 1]},
        expected=[functional.max_pool2d(t(X), (2, 3), 1, dilation=(3, 2)).numpy()],
    ),
    **{
        f"max of windows {kernel}, ceil={ceil}": Case(
            op="MaxPool",
            inputs=[X - 9],
            attributes={
                "kernel_shape": kernel,
                "strides": stride,
                "pads": [k // 2 for k in kernel] * 2,
                "ceil_mode": int(ceil),
            },
            expected=[
                functional.max_pool2d(
                    t(X - 9), kernel, stride, [k // 2 for k in kernel], ceil_mode=ceil
                ).numpy()
            ],
        )
        for kernel, stride in (([5, 5], [1, 1]), ([13, 9], [1, 1]), ([4, 5], [3, 2]))
        for ceil in (False, True)
    },
    "max of dilated windows, NaN": Case(
        op="MaxPool",
        inputs=[np.where(X > 1.5, np.nan, X).astype(np.float32)],
        attributes={"kernel_shape": [4, 4], "dilations": [2, 3], "strides": [1, 1]},
        expected=[
            functional.max_pool2d(
                t(np.where(X > 1.5, np.nan, X).astype(np.float32)), 4, 1, dilation=(2, 3)
            ).numpy()
        ],
    ),
    **{
        f"max, symbolic size, ceil={ceil}": Case(
            op="MaxPool",
            inputs=[random(2, 3, 10, 13)],
            attributes={"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": int(ceil)},
            expected=[functional.max_pool2d(t(random(2, 3, 10, 13)), (2, 3), ceil_mode=ceil).numpy()],
            symbolic={13: "W", 5 if ceil else 4: "int_floor(W + 2, 3)" if ceil else "int_floor(W, 3)"},
        )
        for ceil in (False, True)
    },
    "average, symbolic size, ceil": Case(
        op="AveragePool",
        inputs=[random(2, 3, 4, 13)],
        attributes={"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1, "pads": [0, 1, 0, 1]},
        expected=[functional.avg_pool2d(t(random(2, 3, 4, 13)), (2, 3), (2, 3), (0, 1), True, False).numpy()],
        symbolic={13: "W", 5: "int_floor(W + 4, 3) - 0"},
    ),
    "max of one dimension": Case(
        op="MaxPool",
        inputs=[random(2, 3, 9)],
        attributes={"kernel_shape": [4]},
        expected=[functional.max_pool1d(t(random(2, 3, 9)), 4, 1).numpy()],
    ),
    "max of NaN": Case(
        op="MaxPool",
        inputs=[np.array([[[1, np.nan, 3, 4]]], np.float32)],
        attributes={"kernel_shape": [2]},
        expected=[np.array([[[np.nan, np.nan, 4]]], np.float32)],
    ),
    "max int8": Case(
        op="MaxPool",
        inputs=[(X * 20).astype(np.int8)],
        attributes={"kernel_shape": [2, 2], "pads": [1] * 4},
        expected=[functional.max_pool2d(t(np.trunc(X * 20)), 2, 1, 1).numpy().astype(np.int8)],
    ),
    "max SAME_UPPER": Case(
        op="MaxPool",
        inputs=[IMAGE],
        attributes={"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        expected=[functional.max_pool2d(functional.pad(t(IMAGE), (0, 0, 1, 1), value=-9), (3, 2), 2).numpy()],
    ),
    **{
        f"average ceil={c} include={i}": average(X, [3, 4], [2, 3], [1, 2], c, i)
        for c in (False, True)
        for i in (False, True)
    },
    **{
        f"average beyond the end, pads={p} include={i}": average(X, [3, 3], [2, 2], [p, p], True, i)
        for p in (0, 1)
        for i in (False, True)
    },
    "average plain": average(X, [2, 2], [2, 2], [0, 0], False, False),
    "average dilated": Case(
        op="AveragePool",
        inputs=[X],
        attributes={"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 2, 0, 1]},
    ),
    "average symbolic batch": Case(
        op="AveragePool",
        inputs=[random(9, 2, 4, 5)],
        attributes={"kernel_shape": [3, 3], "pads": [1] * 4},
        symbolic={9: "N"},
    ),
    "indices": Case(
        op="MaxPool",
        inputs=[X],
        attributes={"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        outputs=2,
    ),
    "indices by columns": Case(
        op="MaxPool",
        inputs=[X],
        attributes={"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1},
        expected=list(by_columns(X)),
        outputs=2,
    ),
    "Lp": Case(op="LpPool", inputs=[IMAGE], attributes={"kernel_shape": [2, 2], "p": 2}),
    "GlobalAveragePool": Case(op="GlobalAveragePool", inputs=[X]),
    "GlobalMaxPool": Case(op="GlobalMaxPool", inputs=[X]),
    "GlobalAveragePool of one dimension": Case(op="GlobalAveragePool", inputs=[random(2, 3, 9)]),
}


# parts of cases that stay
SLOW = (
    "max of windows [5, 5], ceil=True",
    "max of windows [13, 9], ceil=False",
    "max of windows [4, 5], ceil=False",
    "average ceil=False include=True",
    "average ceil=True include=False",
    "max dilated",
)


@pytest.mark.parametrize("title", slowed(CASES, *SLOW))
def test_values(outcome: Outcome) -> None:
    outcome.check()

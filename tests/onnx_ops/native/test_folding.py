"""Windows put back together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises


def image(x: np.ndarray, size: tuple[int, int], block: tuple[int, int], **options: tuple[int, int]) -> Case:
    expected = functional.fold(torch.from_numpy(x), size, block, **options)
    pads = options.get("padding", (0, 0))
    attributes = {
        "pads": [*pads, *pads],
        "strides": list(options.get("stride", (1, 1))),
        "dilations": list(options.get("dilation", (1, 1))),
    }
    return Case(
        op="Col2Im",
        inputs=[x, np.array(size), np.array(block)],
        constants=[1, 2],
        attributes=attributes,
        expected=[expected.numpy()],
        version=18,
    )


def unpooled(x: torch.Tensor, kernel: int, **options: int) -> Case:
    values, places = functional.max_pool2d(x, kernel, return_indices=True, **options)
    expected = functional.max_unpool2d(values, places, kernel, **options)
    # torch counts within a channel, ONNX within the whole image
    channels = torch.arange(expected.shape[0] * expected.shape[1]).reshape(*expected.shape[:2], 1, 1)
    places = places + channels * expected.shape[2] * expected.shape[3]
    attributes = {
        "kernel_shape": [kernel] * 2,
        "strides": [options.get("stride", kernel)] * 2,
        "pads": [options.get("padding", 0)] * 4,
    }
    return Case(
        op="MaxUnpool",
        inputs=[values.numpy(), places.numpy()],
        attributes=attributes,
        expected=[expected.numpy()],
    )


X = torch.from_numpy(random(2, 3, 8, 6))
CASES = {
    "columns": image(random(2, 3 * 6, 12), (4, 6), (2, 3)),
    "columns, strides and pads": image(random(1, 2 * 6, 9), (5, 7), (3, 2), stride=(2, 2), padding=(1, 0)),
    "columns, dilated": image(random(1, 4, 20), (6, 7), (2, 2), dilation=(2, 2), padding=(0, 0)),
    "one column": image(random(1, 4, 1), (2, 2), (2, 2)),
    "maxima": unpooled(X, 2),
    "overlapping maxima": unpooled(X[:, :, :7, :5], 3, stride=2, padding=1),
    "behind the pooled image": Case(
        op="MaxUnpool",
        inputs=[
            np.array([[[[5.0, 7], [13, 15]]]], np.float32),
            np.array([[[[0, 3], [9, 14]]]]),
            np.array([1, 1, 5, 6]),
        ],
        constants=[2],
        attributes={"kernel_shape": [2, 2], "strides": [2, 2]},
        expected=[
            np.array(
                [[[[5, 0, 0, 7, 0, 0], [0] * 6, [0, 13, 0, 0, 0, 0], [0, 0, 15, 0, 0, 0], [0] * 6]]],
                np.float32,
            )
        ],
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_an_image_that_is_too_small_is_refused() -> None:
    case = CASES["behind the pooled image"]
    case = Case(
        op=case.op,
        inputs=[*case.inputs[:2], np.array([1, 1, 3, 3])],
        constants=[2],
        attributes=case.attributes,
        expected=[np.zeros((1, 1, 3, 3), np.float32)],
    )
    with raises(NoImplementationError, "MaxUnpool", "output_shape", "[1, 1, 3, 3]"):
        lowered(case)

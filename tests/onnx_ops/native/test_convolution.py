"""Convolution against torch: sizes that differ, every attribute, one to three dimensions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.onnx_ops.native.single_node import Case, Outcome, random

t = torch.from_numpy


def conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    symbolic: dict[int, str] | None = None,
    **attributes,
):
    """A case with torch's result; asymmetric pads are applied before."""
    rank = x.ndim - 2
    pads = attributes.get("pads") or [0] * (2 * rank)
    ends = [p for axis in reversed(range(rank)) for p in (pads[axis], pads[rank + axis])]
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    expected = function(
        functional.pad(t(x), ends),
        t(w),
        None if b is None else t(b),
        stride=attributes.get("strides") or 1,
        dilation=attributes.get("dilations") or 1,
        groups=attributes.get("group", 1),
    )
    inputs = [x, w] if b is None else [x, w, b]
    return Case(
        op="Conv", inputs=inputs, attributes=attributes, expected=[expected.numpy()], symbolic=symbolic or {}
    )


X, B = random(2, 4, 6, 9), random(6)
CASES = {
    "plain": conv(X, random(6, 4, 3, 3)),
    "height and width differ, padded": conv(random(1, 3, 6, 10), random(4, 3, 3, 3), pads=[1, 1, 1, 1]),
    "bias": conv(X, random(6, 4, 3, 2), B),
    "asymmetric pads": conv(X, random(6, 4, 3, 2), B, pads=[0, 1, 2, 3]),
    "strides": conv(X, random(6, 4, 3, 2), B, strides=[2, 3], pads=[1, 0, 1, 0]),
    "dilations": conv(X, random(6, 4, 2, 3), B, dilations=[3, 2], pads=[2, 2, 2, 2]),
    "groups": conv(X, random(6, 2, 3, 3), B, group=2),
    "depthwise": conv(X, random(4, 1, 3, 3), random(4), group=4, pads=[1, 1, 1, 1]),
    "depthwise of two": conv(X, random(8, 1, 3, 3), random(8), group=4),
    "1x1": conv(X, random(6, 4, 1, 1), B),
    "one dimension": conv(random(2, 3, 11), random(5, 3, 4), dilations=[2], pads=[3, 0]),
    "three dimensions": conv(random(1, 2, 4, 5, 6), random(3, 2, 2, 3, 1), pads=[1, 0, 0, 0, 1, 2]),
    "float64": conv(X.astype(np.float64), random(6, 4, 3, 3, dtype=np.float64)),
    "symbolic batch": conv(random(7, 4, 5, 6), random(3, 4, 3, 3), pads=[1, 1, 1, 1], symbolic={7: "N"}),
    **{
        pad: Case(
            op="Conv",
            inputs=[random(1, 2, 5, 8), random(3, 2, 3, 2)],
            attributes={"auto_pad": pad, "strides": [2, 2]},
            expected=[
                functional.conv2d(
                    functional.pad(t(random(1, 2, 5, 8)), ends), t(random(3, 2, 3, 2)), stride=2
                ).numpy()
            ],
        )
        for pad, ends in (("SAME_UPPER", (0, 0, 1, 1)), ("SAME_LOWER", (0, 0, 1, 1)), ("VALID", (0, 0, 0, 0)))
    },
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()

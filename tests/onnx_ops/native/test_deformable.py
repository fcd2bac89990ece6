"""Deformable convolution: a plain one where nothing moves, and by hand where taps do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises

X, W = random(2, 4, 6, 5), random(6, 4, 3, 2, seed=1)


def moved(
    *, groups: int = 1, offset_groups: int = 1, masked: bool = True, bias: bool = True, **options: Any
) -> Case:
    """Each tap as a grid sample of its own."""
    pad, stride, dilation = options.get("pad", 0), options.get("stride", 1), options.get("dilation", 1)
    w = W[:, : 4 // groups]
    height = (6 + 2 * pad - dilation * 2 - 1) // stride + 1
    width = (5 + 2 * pad - dilation - 1) // stride + 1
    offset = random(2, offset_groups * 12, height, width, seed=2, scale=options.get("scale", 1.5))
    mask = random(2, offset_groups * 6, height, width, seed=3)
    columns = torch.zeros(2, 4, 6, height, width)
    rows, cols = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    for channel in range(4):
        for tap in range(6):
            at = channel // (4 // offset_groups) * 6 + tap
            y = rows * stride - pad + tap // 2 * dilation + offset[:, 2 * at]
            x = cols * stride - pad + tap % 2 * dilation + offset[:, 2 * at + 1]
            grid = torch.from_numpy(np.stack([x / 2 - 1, y / 2.5 - 1], -1).astype(np.float32))
            picked = functional.grid_sample(
                torch.from_numpy(X[:, channel : channel + 1]), grid, align_corners=True
            )
            columns[:, channel, tap] = picked[:, 0] * (torch.from_numpy(mask[:, at]) if masked else 1)
    blocks = columns.reshape(2, groups, 4 // groups * 6, height, width)
    weight = torch.from_numpy(w).reshape(groups, 6 // groups, -1)
    expected = torch.einsum("ngkhw,gok->ngohw", blocks, weight).reshape(2, 6, height, width)
    b = np.arange(6, dtype=np.float32)
    expected = expected + torch.from_numpy(b).reshape(-1, 1, 1) if bias else expected
    return Case(
        op="DeformConv",
        inputs=[X, w, offset, b if bias else None, mask if masked else None],
        attributes={
            "group": groups,
            "offset_group": offset_groups,
            "pads": [pad] * 4,
            "strides": [stride] * 2,
            "dilations": [dilation] * 2,
        },
        expected=[expected.numpy()],
        version=19,
        atol=1e-4,
    )


CASES = {
    "moved": moved(),
    "groups": moved(groups=2, offset_groups=2, masked=False),
    "pads, strides, dilations": moved(pad=1, stride=2, dilation=2, bias=False),
    "far away": moved(scale=30),
    "nothing moves": moved(scale=0, offset_groups=4, masked=False),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_groups_must_divide_the_channels() -> None:
    case = moved(offset_groups=2)
    case.attributes = {**case.attributes, "offset_group": 3}
    with raises(NoImplementationError, "DeformConv", "4 and 6", "1 and 3"):
        lowered(case)

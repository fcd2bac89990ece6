"""Transposed convolution against torch: every stride, dilation, padding and group, on odd sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises
from tests.support.sampling import slowed

t = torch.from_numpy
_FUNCTIONS = {3: functional.conv_transpose1d, 4: functional.conv_transpose2d, 5: functional.conv_transpose3d}


def each(value: int | tuple[int, ...], space: int) -> list[int]:
    return [value] * space if isinstance(value, int) else list(value)


def transposed(
    x: tuple[int, ...], w: tuple[int, ...], *, dtype: Any = np.float32, bias: bool = True, **options: Any
) -> Case:
    """A node that does what torch does with these options."""
    values, weight = random(*x, dtype=dtype), random(*w, dtype=dtype, seed=1)
    space, group = len(x) - 2, options.get("groups", 1)
    b = random(w[1] * group, dtype=dtype, seed=2) if bias else None
    expected = _FUNCTIONS[len(x)](t(values), t(weight), None if b is None else t(b), **options).numpy()
    attributes = {
        "strides": each(options.get("stride", 1), space),
        "dilations": each(options.get("dilation", 1), space),
        "pads": each(options.get("padding", 0), space) * 2,
        "output_padding": each(options.get("output_padding", 0), space),
        "group": group,
    }
    inputs = [values, weight] if b is None else [values, weight, b]
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    return Case(
        op="ConvTranspose",
        inputs=inputs,
        attributes=attributes,
        expected=[expected],
        rtol=tolerance,
        atol=tolerance,
    )


def symbolic(case: Case, size: int) -> Case:
    case.symbolic = {size: "N"}
    return case


CASES = {
    "plain": transposed((2, 3, 5, 4), (3, 4, 3, 2)),
    "float64": transposed((2, 3, 5, 4), (3, 4, 3, 2), stride=2, padding=1, dtype=np.float64),
    "no bias": transposed((1, 3, 5, 4), (3, 2, 3, 3), bias=False),
    "kernel twice the stride": transposed((2, 3, 5, 4), (3, 3, 4, 4), stride=2, bias=False),
    "stride 8": transposed((1, 2, 3, 4), (2, 2, 16, 16), stride=8, bias=False),
    "kernel below the stride": transposed((1, 2, 4, 3), (2, 3, 2, 1), stride=(3, 4)),
    "padding that the stride divides": transposed((2, 3, 5, 4), (3, 2, 4, 4), stride=2, padding=2),
    "padding that it does not": transposed((2, 3, 5, 4), (3, 2, 5, 4), stride=(3, 2), padding=(2, 1)),
    "padding beyond the kernel": transposed((1, 2, 9, 8), (2, 3, 2, 1), stride=(1, 2), padding=(3, 4)),
    "output padding": transposed((2, 3, 5, 4), (3, 2, 3, 3), stride=2, padding=1, output_padding=(1, 0)),
    "groups": transposed((2, 6, 5, 4), (6, 2, 3, 3), groups=3, stride=2),
    "one channel a group": transposed((2, 4, 5, 4), (4, 1, 3, 3), groups=4, stride=2, padding=1),
    "dilated": transposed((2, 3, 5, 4), (3, 2, 3, 2), dilation=(2, 3), padding=1),
    "dilated and strided": transposed((2, 3, 5, 4), (3, 2, 3, 2), dilation=(2, 3), stride=(3, 2), padding=2),
    "dilated by the stride": transposed((1, 2, 5, 4), (2, 2, 3, 3), dilation=2, stride=2),
    "strides of two kinds": transposed((1, 2, 5, 4), (2, 2, 3, 3), stride=(1, 3), padding=(0, 2)),
    "one dimension": transposed((2, 3, 7), (3, 4, 4), stride=3, padding=1, output_padding=2),
    "three dimensions": transposed((1, 2, 3, 2, 4), (2, 3, 2, 3, 1), stride=(2, 1, 3), padding=(0, 1, 0)),
    "one pixel": transposed((1, 3, 1, 1), (3, 2, 4, 4), stride=2, padding=1),
    "one channel": transposed((1, 1, 3, 1), (1, 1, 1, 1)),
    "symbolic batch": symbolic(transposed((13, 3, 5, 4), (3, 2, 3, 3), stride=2, padding=1), 13),
    "symbolic batch in groups": symbolic(transposed((13, 4, 5, 4), (4, 3, 3, 3), stride=2, groups=2), 13),
    "pads of two kinds": Case(
        op="ConvTranspose",
        inputs=[random(1, 2, 5, 4), random(2, 3, 3, 4)],
        attributes={"strides": [2, 2], "pads": [1, 0, 0, 2]},
        expected=[
            functional.conv_transpose2d(t(random(1, 2, 5, 4)), t(random(2, 3, 3, 4)), stride=2)
            .numpy()[:, :, 1:, :-2]
        ],
    ),
    "output shape": Case(
        op="ConvTranspose",
        inputs=[random(1, 2, 5, 4), random(2, 3, 4, 3)],
        attributes={"strides": [2, 2], "output_shape": [10, 8]},
        expected=[
            functional.conv_transpose2d(t(random(1, 2, 5, 4)), t(random(2, 3, 4, 3)), stride=2)
            .numpy()[:, :, 1:-1, 1:]
        ],
    ),
    "SAME_UPPER": Case(
        op="ConvTranspose",
        inputs=[random(1, 2, 5, 4), random(2, 3, 4, 3)],
        attributes={"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        expected=[
            functional.conv_transpose2d(t(random(1, 2, 5, 4)), t(random(2, 3, 4, 3)), stride=2)
            .numpy()[:, :, 1:-1, :-1]
        ],
    ),
    "float16": Case(
        op="ConvTranspose",
        inputs=[random(1, 2, 5, 4, dtype=np.float16), random(2, 3, 3, 3, dtype=np.float16)],
        attributes={"strides": [2, 2]},
        expected=[
            functional.conv_transpose2d(
                t(random(1, 2, 5, 4, dtype=np.float16)).double(),
                t(random(2, 3, 3, 3, dtype=np.float16)).double(),
                stride=2,
            )
            .numpy()
            .astype(np.float16)
        ],
        rtol=1e-3,
        atol=1e-3,
    ),
}  # fmt: skip


# parts of cases that stay
SLOW = (
    "no bias",
    "stride 8",
    "padding that the stride divides",
    "dilated",
    "strides of two kinds",
    "one channel",
    "symbolic batch",
)


@pytest.mark.parametrize("title", slowed(CASES, *SLOW))
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_no_loop_divides() -> None:
    network = lowered(CASES["stride 8"])
    (tasklets,) = [[n for n in s.nodes() if hasattr(n, "code")] for s in network.sdfg.states()]
    assert not [n.code.as_string for n in tasklets if "//" in n.code.as_string or "%" in n.code.as_string]


def test_negative_pads_are_refused() -> None:
    case = Case(
        op="ConvTranspose",
        inputs=[random(1, 2, 7, 7), random(2, 3, 3, 3)],
        attributes={"strides": [2, 2], "pads": [-1, 0, 0, 0]},
        expected=[random(1, 3, 15, 15)],
    )
    with raises(NoImplementationError, "native:phases", "pads"):
        lowered(case)


def test_symbolic_spatial_sizes_are_refused() -> None:
    case = transposed((1, 2, 9, 4), (2, 3, 3, 3))
    case.symbolic = {9: "H"}
    with raises(NoImplementationError, "native:phases", "symbolic"):
        lowered(case)

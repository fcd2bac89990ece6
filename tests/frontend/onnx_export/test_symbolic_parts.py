"""Parts, repetitions and other orders of dimensions whose size is open; sizes of 0 and 1 included."""

from __future__ import annotations

import pytest
import torch

from daceml.module.module import compile_module
from tests.support.exported_models import Lambda

SHAPES = ((4, 4), (5, 3), (1, 4), (0, 3))


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def agree(function, *shapes: tuple[int, ...]) -> None:
    compiled = compile_module(Lambda(function), backward=False, dynamic=True)
    for shape in shapes:
        x = torch.randn(shape)
        ours, theirs = compiled(x), function(x)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            assert torch.equal(one, other)


def test_parts_of_open_sizes():
    def function(x):
        half = x.shape[0] // 2
        return *x.chunk(2), *x.split([half, x.shape[0] - half]), x[:half], x[half:], torch.cat([x, x[:1]])

    agree(function, *SHAPES)


def test_parts_of_fixed_size():
    agree(lambda x: x.split(2), (4, 4), (6, 4), (5, 3), (0, 3))


def test_derived_sizes_reach_operators_outside():
    """What ONNX Runtime runs is told sizes that are no input's: a half, a double."""
    agree(lambda x: (x[: x.shape[0] // 2], x.repeat(2, 1), *torch.cat([x, x]).sort(0)), (4, 4), (7, 3))


def test_rolls_of_open_sizes():
    agree(lambda x: (x.roll(1, 0), x.roll(-2, 1), x.roll((1, 7), (0, 1)), x.roll(5)), *SHAPES)


def test_assignments_to_parts():
    def function(x):
        shifted, marked = torch.zeros_like(x), x.clone()
        shifted[1:] = x[:-1]
        shifted[:, -1] = 2
        marked[: x.shape[0] // 2] += 1
        marked[::2] = 0
        marked[-1] = 7
        return shifted, marked

    agree(function, (4, 4), (7, 3), (1, 4))

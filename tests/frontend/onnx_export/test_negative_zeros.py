"""0.0 and -0.0 are two numbers, wherever a graph has both."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.frontend.onnx_export.negative_zeros import NegativeZero


class Signs(nn.Module):
    """Zeros of both signs as factors, choices, fillings and bounds."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x * 0.0,
            x * -0.0,
            torch.where(x > 1, 0.0, -0.0),
            torch.where(x > 1, -0.0, 0.0),
            torch.full_like(x, -0.0),
            torch.full_like(x, 0.0),
            functional.pad(x, (1, 0), value=-0.0),
            functional.pad(x, (1, 0), value=0.0),
            torch.stack([x.new_tensor(0.0), x.new_tensor(-0.0)]),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_both_zeros_keep_their_signs(dtype: torch.dtype):
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype)
    for found, expected in zip(daceml.compile(Signs(), backward=False)(x), Signs()(x), strict=True):
        assert torch.equal(found, expected)
        assert torch.equal(found.signbit(), expected.signbit())


def test_a_negative_zero_is_a_number_that_equals_itself_alone():
    zero = NegativeZero()
    assert str(float(zero)) == "-0.0" and isinstance(zero, float)
    assert zero == NegativeZero() and hash(zero) == hash(NegativeZero())
    assert zero != 0.0 and zero != -0.0 and zero != 0

"""Strides of eager PyTorch where the trace has others: what they decide comes out as in eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from tests.support.exported_models import Lambda


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("then", ["interpolate", "convolution", "nothing"])
def test_dropout_of_tokens_as_images(then: str, sizes: tuple[int, ...]):
    """A batch of one, reshaped from rows of channels, is not channels-last in eager PyTorch."""
    after = {
        "interpolate": lambda y: nn.functional.interpolate(y, size=(6, 6), mode="bilinear"),
        "convolution": nn.Conv2d(4, 6, 1),
        "nothing": lambda y: y,
    }[then]
    module = Lambda(lambda x: nn.functional.dropout(after(x.mT.reshape(-1, 4, 8, 8)).relu() + 1, 0.5))
    compiled = daceml.compile(module, backward=False, dynamic=len(sizes) > 2)
    for size in sizes:
        x = torch.randn(size, 64, 4)
        with torch.no_grad():
            torch.manual_seed(1)
            expected = module(x)
            torch.manual_seed(1)
            found = compiled(x)
        assert 0 < (expected == 0).sum() < expected.numel()
        assert torch.equal(found == 0, expected == 0)

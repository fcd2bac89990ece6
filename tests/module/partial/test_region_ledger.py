"""Counting the FLOPs of regions leaves no trace."""

from __future__ import annotations

import torch
from torch import nn

import daceml
from daceml.module.partial.region_ledger import recorded_regions


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) + torch.randn(3)


def test_nothing_is_drawn_while_operations_are_counted():
    module = Noisy()
    compiled = daceml.compile(module)
    x = torch.ones(2, 3)
    torch.manual_seed(1)
    expected = module(x)
    torch.manual_seed(1)
    with recorded_regions() as regions:
        found = compiled(x)
    torch.testing.assert_close(found, expected)
    assert regions.compiled_flops == 2 * 2 * 3 * 3

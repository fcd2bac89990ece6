"""Counting the FLOPs of regions leaves no trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.module.partial.region_ledger import recorded_regions, share_text


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


class Padded(nn.Module):
    """A border as wide as another argument, then a view by sizes of that argument."""

    def forward(self, x, y):
        rows = nn.functional.pad(x, (0, y.shape[1] + 1)).view(y.shape[3], y.shape[1], -1)
        return rows @ rows.transpose(1, 2)


def test_operations_on_symbolic_sizes_are_counted():
    compiled = daceml.compile(Padded(), dynamic=True)
    x, y = torch.ones(16, 4, 8, 12), torch.ones(16, 4, 3, 16)
    with recorded_regions() as regions:
        compiled(x, y)
    assert regions.compiled_flops == 2 * 16 * 4 * 4 * 8 * (12 + 4 + 1)


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100.0%"), (0.9999, "99.9%"), (0.998, "99.8%"), (0.29, "29.0%"), (0.0, "0.0%")],
)
def test_only_a_whole_is_100_percent(share: float, text: str):
    assert share_text(share) == text

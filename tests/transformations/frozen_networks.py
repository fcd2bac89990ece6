"""Trained modules compiled with frozen weights: what a pass changed in them, and results beside eager's."""

from __future__ import annotations

import torch
from torch import nn

import daceml


def trained(module: nn.Module) -> nn.Module:
    """In eval mode, with statistics of a batch norm that are not its first ones."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2)
            for parameter in part.parameters():
                nn.init.normal_(parameter)
    return module.eval()


def frozen(module: nn.Module) -> daceml.DaceModule:
    """Compiled for inference with the weights as they are."""
    compiled = daceml.compile(module, backward=False, freeze=True)
    assert isinstance(compiled, daceml.DaceModule)
    return compiled


def applied(compiled: daceml.DaceModule, name: str = "fuse_activations") -> dict[str, int]:
    """How often a pass applied each of its rewrites."""
    return next(p.applied for p in compiled.session.latest.network.passes if p.name == name)


def assert_same(y: torch.Tensor, expected: torch.Tensor) -> None:
    """NaN and infinities in the same places; elsewhere sums of another order, by the largest of them."""
    finite = expected.isfinite()
    torch.testing.assert_close(y[~finite], expected[~finite], equal_nan=True, rtol=0, atol=0)
    largest = expected[finite].abs().max().item() if finite.any() else 0.0
    torch.testing.assert_close(y[finite], expected[finite], rtol=0, atol=1e-5 * largest)

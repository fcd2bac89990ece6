"""Equal layers are compiled once: depth adds steps, not kernels."""

from __future__ import annotations

import torch
from torch import nn

from daceml.module.module import compile_module
from daceml.runtime.records.manifest import Manifest


def manifest(depth: int) -> Manifest:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    module = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).eval()
    compiled = compile_module(module, backward=False)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    return compiled.session.latest.program.manifest  # pyright: ignore[reportAttributeAccessIssue]


def test_four_layers_have_the_kernels_of_two():
    two, four = manifest(2), manifest(4)
    assert four.kernels == two.kernels
    assert len(four.steps) > 1.5 * len(two.steps)
    assert {s.kernel for s in four.steps} == {s.kernel for s in two.steps}

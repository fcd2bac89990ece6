"""What a hook does before differentiation decides what the forward pass stores."""

from __future__ import annotations

from typing import Any

import torch
from dace.config import set_temporary
from dace.transformation.dataflow import MapFusionVertical, TaskletFusion
from torch import nn

import daceml
from daceml.onnx_ops.expansion import expand_onnx_nodes


class Mish(nn.Module):
    """x tanh(softplus(x)), spelled out, after a product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y * torch.tanh(torch.log1p(torch.exp(y)))


def lower_and_fuse(module: Any) -> None:
    """Elementwise operators become one tasklet, so that one expression is differentiated."""
    expand_onnx_nodes(module)
    # two tasklets without line numbers are too much for TaskletFusion, and the tests do without them
    with set_temporary("compiler", "lineinfo", value="inspect"):
        module.sdfg.apply_transformations_repeated([MapFusionVertical, TaskletFusion])


def test_what_is_one_tasklet_before_differentiation_is_not_stored():
    module = Mish().double()
    x = torch.randn(9, 24, dtype=torch.float64, requires_grad=True)
    wanted = torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])
    stored: list[int] = []
    for hook in (None, lower_and_fuse):
        compiled = daceml.compile(module, recompute="none")
        if hook is not None:
            compiled.append_post_onnx_hook("fuse", hook)
        found = torch.autograd.grad(compiled(x).square().sum(), [x, *module.parameters()])
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        stored.append(sum(r.bytes for r in daceml.explain(compiled, x).storage if r.stored))
    # the product, its exponential and what follows; in one tasklet only operands, which are held anyway
    assert stored[0] >= 2 * 9 * 40 * 8
    assert stored[1] == 0

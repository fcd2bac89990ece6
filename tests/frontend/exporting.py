"""Export a module, run the model with onnx's reference implementation, compare with eager PyTorch."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

from daceml.frontend.export import export_program, to_onnx

FLOAT32_TOLERANCE = 2e-5
"""Sums of some hundred float32 products in another order than torch's."""


class Lambda(nn.Module):
    """A module of one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def onnx_of(module: nn.Module, *args: Any, dynamic_shapes: Any = None) -> ir.Model:
    """The model of a module, checked in full."""
    model = to_onnx(export_program(module, args, dynamic_shapes=dynamic_shapes))
    onnx.checker.check_model(ir.serde.serialize_model(model), full_check=True)
    return model


def run(model: ir.Model, *args: torch.Tensor) -> list[np.ndarray]:
    """What onnx's reference implementation computes."""
    feeds = {value.name: arg.detach().numpy() for value, arg in zip(model.graph.inputs, args, strict=True)}
    return ReferenceEvaluator(ir.serde.serialize_model(model)).run(None, feeds)  # type: ignore[return-value]


def operators(model: ir.Model) -> Counter[str]:
    """How many nodes of each operator there are, constants aside."""
    return Counter(node.op_type for node in model.graph if node.op_type != "Constant")


def agrees(
    module: nn.Module, *args: torch.Tensor, tolerance: float = FLOAT32_TOLERANCE, **options: Any
) -> ir.Model:
    """Export, compare outputs with eager PyTorch (values, shapes and types), and give the model."""
    model = onnx_of(module, *args, **options)
    expected = torch.utils._pytree.tree_leaves(copy.deepcopy(module)(*[arg.clone() for arg in args]))
    actual = run(model, *args)[: len(expected)]
    for got, want in zip(actual, expected, strict=True):
        assert (got.shape, str(got.dtype)) == (tuple(want.shape), str(want.dtype).removeprefix("torch."))
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=tolerance, atol=tolerance)
    return model


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers, the same for every call with this shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def whole(*shape: int) -> torch.Tensor:
    """Whole numbers from 0 to 3."""
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(sum(shape)))

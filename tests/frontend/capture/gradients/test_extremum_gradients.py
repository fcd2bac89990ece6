"""Gradients of extremes next to eager's: of equal elements, of NaN, of infinite cotangents."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import daceml
from tests.support.tensor_functions import Apply

Function = Callable[[torch.Tensor], torch.Tensor]

INF, NAN = float("inf"), float("nan")
FUNCTIONS: dict[str, Function] = {
    "amax": lambda x: x.amax(1),
    "amin of all": lambda x: x.amin(),
    "amax of two dimensions": lambda x: x.view(3, 2, 2).amax((0, 2), keepdim=True),
    "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=1)),
    "max of all": lambda x: x.sin().max(),
    "min of all": lambda x: x.min() * 2,
    "max along a dimension": lambda x: x.max(1).values,
    "infinite norm": lambda x: x.norm(INF, 1),
    "infinite norm of all": lambda x: torch.linalg.vector_norm(x, INF, dtype=torch.float64),
    "least magnitude": lambda x: torch.linalg.vector_norm(x, -INF, (0, 1), keepdim=True),
    "an infinite cotangent": lambda x: x.amax(1) * INF,
}
VALUES = {
    "numbers": [[1.0, 3.0, 3.0, -4.0], [2.0, 2.0, 2.0, 2.0], [0.0, -0.0, -1.0, 0.0]],
    "NaN": [[1.0, NAN, 3.0, 3.0], [NAN, NAN, 1.0, 0.0], [2.0, 2.0, 1.0, INF]],
}


def gradient(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaf = x.clone().requires_grad_()
    result = call(leaf)
    weights = torch.arange(1.0, 1 + result.numel(), dtype=result.dtype).view_as(result)
    return result.detach(), torch.autograd.grad(result, leaf, weights)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_extremes_are_eagers(name: str, values: str, dtype: torch.dtype):
    x, function = torch.tensor(VALUES[values], dtype=dtype), FUNCTIONS[name]
    found = gradient(daceml.compile(Apply(function), fullgraph=True), x)
    torch.testing.assert_close(found, gradient(function, x), equal_nan=True)

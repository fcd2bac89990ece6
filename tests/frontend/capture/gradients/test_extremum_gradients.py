"""Gradients of extremes next to eager's: of equal elements, of NaN, of infinite cotangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import daceml
from tests.support.computations import Cases

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


def gradients(call: Callable[..., dict[str, torch.Tensor]], cases: Cases, x: torch.Tensor) -> dict[str, Any]:
    """Result and gradient of each function."""
    leaves = [x.clone().requires_grad_() for _ in cases.inputs]
    results = call(*leaves)
    weights = [torch.arange(1.0, 1 + y.numel(), dtype=y.dtype).view_as(y) for y in results.values()]
    found = cases.apart(torch.autograd.grad(list(results.values()), leaves, weights))
    return {name: (result.detach(), *found[name]) for name, result in results.items()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_gradients_of_extremes_are_eagers(dtype: torch.dtype):
    values = {name: torch.tensor(rows, dtype=dtype) for name, rows in VALUES.items()}
    cases = Cases({name: (function, [values["numbers"]]) for name, function in FUNCTIONS.items()})
    compiled = daceml.compile(cases, fullgraph=True)
    for kind, x in values.items():
        found, expected = gradients(compiled, cases, x), gradients(cases, cases, x)
        for name in FUNCTIONS:
            torch.testing.assert_close(
                found[name],
                expected[name],
                equal_nan=True,
                msg=lambda text, case=f"{name} of {kind}": f"{case}: {text}",
            )

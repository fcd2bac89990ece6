"""use_row_positions: scatters and gathers of whole rows, with the values and the refusals of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import daceml
from daceml.errors import ExecutionError
from tests.support.tensor_functions import Apply

ROWS, EDGES = 9, 31
Function = Callable[..., torch.Tensor]


def expanded(i: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return i.view(-1, *(1,) * (like.dim() - 1)).expand_as(like)


def scatter(reduce: str, include_self: bool = True) -> Function:
    def function(x: torch.Tensor, i: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, expanded(i, u), u, reduce, include_self=include_self)

    return function


def attention(x: torch.Tensor, i: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """A softmax over the edges of each node, as graph attention has it."""
    most = u.new_full(x.shape, -9.0).scatter_reduce(0, expanded(i, u), u, "amax")
    weights = (u - most.index_select(0, i)).exp()
    total = torch.zeros_like(x).scatter_add(0, expanded(i, u), weights)
    return weights / total.gather(0, expanded(i, u))


FUNCTIONS: dict[str, Function] = {
    "scatter_add": lambda x, i, u: x.scatter_add(0, expanded(i, u), u),
    "sum": scatter("sum"),
    "prod": scatter("prod"),
    "amax": scatter("amax"),
    "amin of updates alone": scatter("amin", include_self=False),
    "mean": scatter("mean", include_self=False),
    "gather": lambda x, i, u: x.gather(0, expanded(i, u)) * u,
    "attention": attention,
}


def told(function: Function, *inputs: torch.Tensor) -> str:
    compiled: Any = daceml.compile(Apply(function), backward=False)
    with torch.no_grad():
        compiled(*inputs)
        return str(daceml.explain(compiled, *inputs))


def inputs_of(*width: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    x, u = torch.randn(ROWS, *width).to(dtype), (3 * torch.randn(EDGES, *width)).to(dtype)
    return x, torch.randint(0, ROWS - 1, (EDGES,)), u


@pytest.mark.parametrize("width", [(5,), (3, 4), (1,)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_torch(name: str, width: tuple[int, ...]):
    inputs = inputs_of(*width)
    function = FUNCTIONS[name]
    with torch.no_grad():
        found = daceml.compile(Apply(function))(*inputs)
    torch.testing.assert_close(found, function(*inputs), rtol=1e-5, atol=1e-5)
    if width != (1,):
        assert "of rows" in told(function, *inputs)


@pytest.mark.parametrize("name", ["scatter_add", "mean", "gather"])
def test_gradients_are_those_of_torch(name: str):
    function = FUNCTIONS[name]
    x, i, u = inputs_of(6)
    grads: list[list[torch.Tensor]] = []
    for call in (daceml.compile(Apply(function)), function):
        given = x.clone().requires_grad_(), i, u.clone().requires_grad_()
        call(*given).sin().sum().backward()
        grads.append([t.grad for t in (given[0], given[2]) if t.grad is not None])
    for ours, expected in zip(*grads, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int8], ids=str)
def test_other_types(dtype: torch.dtype):
    inputs = inputs_of(5, dtype=dtype)
    for name in ("scatter_add", "amax"):
        with torch.no_grad():
            assert torch.equal(daceml.compile(Apply(FUNCTIONS[name]))(*inputs), FUNCTIONS[name](*inputs))


def test_open_sizes():
    compiled = daceml.compile(Apply(FUNCTIONS["scatter_add"]), dynamic=True)
    for rows, edges in ((9, 31), (4, 50), (7, 1)):
        x, i, u = torch.randn(rows, 5), torch.randint(0, rows, (edges,)), torch.randn(edges, 5)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, i, u), FUNCTIONS["scatter_add"](x, i, u))


@pytest.mark.parametrize("position", [ROWS, -1])
def test_positions_outside_are_refused(position: int):
    x, i, u = inputs_of(5)
    i[3] = position
    for name in ("scatter_add", "gather"):
        compiled = daceml.compile(Apply(FUNCTIONS[name]))
        with torch.no_grad(), pytest.raises(ExecutionError, match="an index is outside"):
            compiled(x, i, u)


def test_others_keep_their_elements():
    x, i, u = inputs_of(5)
    cases: dict[str, Function] = {
        "differ along a row": lambda x, i, u: x.scatter_add(0, torch.arange(u.numel()).view_as(u) % 9, u),
        "first of several dimensions": lambda x, i, u: x.scatter_add(
            1, torch.zeros(9, 1, dtype=torch.int64).expand(9, 5), u[:9]
        ),
        "part of each row": lambda x, i, u: x.scatter_add(0, i.view(-1, 1).expand(EDGES, 3), u),
    }
    for reason, function in cases.items():
        text = " ".join(told(function, x, i, u).split())  # lines end where a terminal ends
        assert "of rows" not in text and reason in text

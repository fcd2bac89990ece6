"""Sums over rows of reshaped arrays: what they join, that gradients stay, and what is refused."""

from __future__ import annotations

import dace
import pytest
import torch
from dace.symbolic import symbol
from torch import nn
from torch.nn import functional

import daceml
from daceml.sdfg.lifting import Statement
from daceml.sdfg.network import Network
from daceml.sdfg.scalar import read, reduce_over
from daceml.transformations import Recipe, Step, standard_recipe
from daceml.transformations.local.view_sums import StaysApart, View, sum_through_views, through_views
from tests.support.golden import raises
from tests.support.sampling import sampled
from tests.support.tensor_functions import Apply

RECIPE = standard_recipe().without("separate_biases").before("fuse_subgraphs", sum_through_views)


class Layer(nn.Module):
    """A layer norm behind a linear layer: gradients of two biases and a scale go through the same rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.activation = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.activation(self.norm(self.linear(x) + x)))


def sums_by_loop(network: Network) -> list[int]:
    """How many sums each loop of a network writes shares of."""
    scopes, state = network.state.scope_dict(), network.state
    found: list[int] = []
    for node in state.nodes():
        if isinstance(node, dace.nodes.MapEntry) and scopes[node] is None:
            written = [str(e.data.data) for e in state.out_edges(state.exit_node(node))]
            found.append(sum("bias_gradient_shares" in w or "weight_gradient_shares" in w for w in written))
    return found


def most_sums(recipe: Recipe) -> int:
    """In one loop of the backward pass."""
    seen: list[int] = []

    def look(network: Network) -> None:  # is compiled anew each time, as a function of no module has no key
        seen.append(max(sums_by_loop(network), default=0))

    module = daceml.compile(Layer(64), recipe=recipe + Recipe(Step(look, at="hardware")))
    module(torch.randn(8, 64, 64, requires_grad=True)).sum().backward()
    return max(seen)


def test_a_bias_gradient_joins_those_of_the_layer_norm():
    assert most_sums(standard_recipe()) == 3, "a separated bias is added behind the view"
    assert most_sums(standard_recipe().without("separate_biases")) == 2
    assert most_sums(RECIPE) == 3


SHAPES = [(1, 1, 32), (3, 50, 33), (2, 7, 11, 17)]


@pytest.mark.parametrize("shape", sampled([(s,) for s in SHAPES], ((2, 7, 11, 17),)), ids=str)
def test_gradients_are_those_of_torch(shape: tuple[int, ...]):
    torch.manual_seed(0)
    eager = Layer(shape[-1]).double()
    module = daceml.compile(eager, recipe=RECIPE)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    given = [x, *eager.parameters()]
    found, wanted = (torch.autograd.grad(f(x).sin().sum(), given) for f in (module, eager))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


def sums_of_rows(x: torch.Tensor) -> torch.Tensor:
    return x.sin().reshape(-1, 32).sum(0)


def columns(x: torch.Tensor) -> torch.Tensor:
    return x.sin().reshape(-1, 32).sum(1)


def test_sums_of_rows_go_through_the_array_and_those_of_columns_do_not():
    module, other = (daceml.compile(Apply(f), recipe=RECIPE) for f in (sums_of_rows, columns))
    torch.manual_seed(0)
    x = torch.randn(40, 6, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(module(x), sums_of_rows(x))
        torch.testing.assert_close(other(x), columns(x))
    assert "sums through views" in str(daceml.explain(module, x))
    assert "sums through views" not in str(daceml.explain(other, x))


def test_sums_that_number_the_rows_say_why_they_stay():
    row, column = symbol("q0"), symbol("p0")
    view = read("V", dace.float64, (row, column), (24, 32))
    terms = view * read("A", dace.float64, (row,), (24,))
    statement = Statement(
        label="sum", target="s", index=(column,), params=(column,), extents=(32,),
        value=reduce_over("sum", (row,), (24,), terms),
    )  # fmt: skip
    with raises(StaysApart, "row"):
        through_views(statement, {"V": View(source="X", leading=(4, 6))})

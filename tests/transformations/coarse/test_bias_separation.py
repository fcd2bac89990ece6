"""separate_biases: which loops add a bias, torch's numbers and gradients, and why others stay."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.sdfg.network import Network
from daceml.transformations.coarse.bias_separation import NAME, separate_biases
from daceml.transformations.standard import operator_recipe
from tests.support.golden import golden
from tests.support.sampling import sampled
from tests.transformations.coarse.lifted import equals_eager, lifted, operators, reasons


class Layers(nn.Module):
    """Two linear layers with what stands between and behind them."""

    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(5, 7, bias=bias)
        self.second = nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(functional.gelu(self.first(x)))


def applied(network: Network) -> dict[str, int]:
    return dict(next(p for p in network.passes if p.name == NAME).applied)


SHAPES = [(3, 5), (2, 3, 5), (1, 5), (4, 1, 2, 5)]


@pytest.mark.parametrize("shape", sampled([(s,) for s in SHAPES], ((1, 5),), ((4, 1, 2, 5),)))
def test_values_with_nan_and_infinity(shape: tuple[int, ...]):
    torch.manual_seed(0)
    module, x = Layers().double(), torch.randn(shape, dtype=torch.float64)
    network = lifted(module, x, recipe=operator_recipe())
    assert applied(network) == {NAME: 2}
    assert operators(network)["Add"] == 3
    equals_eager(module, x, rtol=1e-12)
    x = x.float()
    x.view(-1)[0], x.view(-1)[-1] = float("nan"), float("inf")
    compiled = daceml.compile(module.float().eval(), backward=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), equal_nan=True)


def test_gradients():
    torch.manual_seed(0)
    module, x = Layers().double(), torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    compiled = daceml.compile(module)
    wanted = [x, *module.parameters()]
    ours = torch.autograd.grad(compiled(x).square().sum(), wanted)
    theirs = torch.autograd.grad(module(x).square().sum(), wanted)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    assert applied(lifted(module, x)) == {NAME: 1}, "what GELU's gradient reads is the biased array"


def test_why_others_stay():
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

    class Returned(Other):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    class Twice(Other):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            return torch.tanh(y) * torch.exp(y)

    class Normalized(Other):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.layer(x), -1)

    class Heads(Other):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.layer(x).reshape(2, 3, 2, 3))

    class Scaled(Other):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.addmm(self.layer.bias, x[0], self.layer.weight, beta=0.5))

    x = torch.randn(2, 3, 6)
    for module, fact in (
        (Returned(), "caller"),
        (Twice(), "several"),
        (Normalized(), "generated kernel"),
        (Heads(), "vector"),
        (Scaled(), "scaled"),
    ):
        network = lifted(module, x)
        separate_biases(network)
        said = "\n".join(reasons(network, NAME))
        assert said == golden()
        assert fact in said, type(module).__name__
        if isinstance(module, (Heads, Scaled)):  # the others are layers of many other tests
            equals_eager(module, x, rtol=1e-5)

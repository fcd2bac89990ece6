"""join_products: which products become one, eager's numbers with it, and the reasons of those that stay."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from tests.support.golden import golden
from tests.support.sampling import sampled
from tests.transformations.frozen_networks import frozen


class Gates(nn.Module):
    """Three products, whose results loops read."""

    def __init__(
        self, width: int = 13, *, bias: bool = True, columns: tuple[int, int, int] = (7, 7, 7)
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (nn.Linear(width, n, bias=bias) for n in columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.a(x)) * torch.tanh(self.b(x)) + self.c(x)


class Heads(nn.Module):
    """Attention, which takes copies."""

    def __init__(self, width: int = 20, heads: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (
            part(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        return functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(x.shape)


class Unequal(Gates):
    """Results of different widths."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(self.a(x)), torch.tanh(self.b(x)), torch.exp(self.c(x)).sum(-1)


class Result(Gates):
    """One product is a result itself."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(self.a(x)) * self.b(x), functional.linear(x, self.c.weight, self.c.bias)


def record(compiled: daceml.DaceModule) -> tuple[dict[str, int], list[str]]:
    found = next(p for p in compiled.session.latest.network.passes if p.name == "join_products")
    return found.applied, [r.reason for r in found.refused]


def products(compiled: daceml.DaceModule) -> int:
    return sum("mm_out" in step.label for step in compiled.session.latest.program.manifest.steps)


NETS = {
    "gates": (Gates(), 1),
    "no bias": (Gates(bias=False), 1),
    "unequal": (Unequal(columns=(3, 11, 6)), 3),
}


@pytest.mark.parametrize(
    ("name", "rows"),
    sampled(itertools.product(NETS, [(5,), (2, 3)]), ("gates", (5,)), ("no bias", (2, 3)), ("unequal", (5,))),
)
def test_loops_take_parts_out_of_the_whole(name: str, rows: tuple[int, ...]):
    net, kernels = NETS[name]
    net, x = net.eval().double(), torch.randn(*rows, 13, dtype=torch.float64)
    x.view(-1, 13)[1, 2] = float("nan")
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-12, atol=1e-12, equal_nan=True)
    assert record(compiled) == ({"products": 2}, [])
    assert products(compiled) == 1
    assert compiled.session.latest.program.manifest.kernels <= kernels


def test_attention_of_few_rows():
    net, x = Heads().eval().double(), torch.randn(2, 7, 20, dtype=torch.float64)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-12, atol=1e-12)
    assert record(compiled) == ({"products": 2}, [])
    assert products(compiled) == 1


def test_attention_of_many_rows_stays():
    net, x = Heads(64).eval(), torch.randn(4, 64, 64)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-5)
    applied, reasons = record(compiled)
    assert applied == {}
    assert len(reasons) == 3
    (reason,) = set(reasons)
    assert reason == golden()
    assert "49152 elements" in reason


def test_a_result_stays():
    net, x = Result().eval().double(), torch.randn(5, 13, dtype=torch.float64)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-12, atol=1e-12)
    applied, (reason,) = record(compiled)
    assert applied == {"products": 1} and reason == golden()
    assert "result" in reason
    assert products(compiled) == 2


def test_any_number_of_rows():
    net = Gates().eval().double()
    compiled = daceml.compile(net, backward=False, freeze=True, dynamic_shapes={"x": {0: "rows"}})
    with torch.no_grad():
        for rows in (5, 1, 12):
            x = torch.randn(rows, 13, dtype=torch.float64)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-12, atol=1e-12)
    assert products(compiled) == 1


def test_weights_that_may_change_stay():
    net, x = Gates().eval(), torch.randn(5, 13)
    compiled = daceml.compile(net, backward=False)
    with torch.no_grad():
        compiled(x)
    assert products(compiled) == 3

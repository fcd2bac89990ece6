"""transpose_weights: which products read a weight row by row, and eager's numbers with it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import daceml
from tests.support.golden import golden
from tests.support.sampling import sampled
from tests.transformations.frozen_networks import frozen


def record(compiled: daceml.DaceModule) -> tuple[dict[str, int], list[str]]:
    found = next(p for p in compiled.session.latest.network.passes if p.name == "transpose_weights")
    return found.applied, [r.reason for r in found.refused]


def prepared(compiled: daceml.DaceModule) -> list[str]:
    return [made.function for made in compiled.session.latest.program.manifest.prepared if made.read]


@pytest.mark.parametrize(
    ("rows", "dtype"),
    sampled(
        itertools.product([(), (1,), (7,), (3, 5)], [torch.float32, torch.float64]),
        ((), torch.float32),
        ((1,), torch.float64),
        ((7,), torch.float64),
        ((3, 5), torch.float32),
    ),
)
def test_small_weights(rows: tuple[int, ...], dtype: torch.dtype):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(13, 129), nn.Tanh(), nn.Linear(129, 127, bias=False)).eval().to(dtype)
    x = torch.randn(*rows, 13, dtype=dtype)
    x.view(-1)[3] = float("nan") if rows == (7,) else 1.0
    compiled = frozen(net)
    with torch.no_grad():
        exact = net.double()(x.double())
        tolerance = 1e-5 if dtype == torch.float32 else 1e-13
        net.to(dtype)
        found = compiled(x)
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert record(compiled) == ({"products": 2}, [])
    assert prepared(compiled) == ["Transpose", "Transpose"]


def test_any_number_of_rows():
    net = nn.Linear(19, 23).eval().double()
    compiled = daceml.compile(net, backward=False, freeze=True, dynamic_shapes={"input": {0: "rows"}})
    with torch.no_grad():
        for rows in (5, 1, 12):
            x = torch.randn(rows, 19, dtype=torch.float64)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-13, atol=1e-13)
    assert record(compiled) == ({"products": 1}, [])


def test_one_weight_of_two_products():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(11, 11)
            self.second = nn.Linear(11, 11)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(x))) @ self.first.weight

    net, x = Tied().eval().double(), torch.randn(3, 11, dtype=torch.float64)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-13, atol=1e-13)
    assert record(compiled) == ({"products": 2}, [])
    assert prepared(compiled) == ["Transpose"]


@pytest.mark.parametrize(
    ("net", "x", "facts"),
    [
        (nn.Linear(512, 300), torch.randn(3, 512), ["614400 bytes", "524288"]),
        (nn.Linear(8, 9).bfloat16(), torch.randn(3, 8).bfloat16(), ["bfloat16"]),
    ],
    ids=["large", "bfloat16"],
)
def test_weights_that_stay(net: nn.Module, x: torch.Tensor, facts: list[str]):
    compiled = frozen(net.eval())
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=2e-2, atol=2e-2)
    applied, (refusal,) = record(compiled)
    assert applied == {}
    assert refusal == golden()
    assert all(fact in refusal for fact in facts)

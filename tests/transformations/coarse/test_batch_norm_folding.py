"""fold_batch_norms: one rounding of new weights, and the convolutions that keep their normalization."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import daceml
from tests.support.golden import golden
from tests.support.sampling import sampled
from tests.transformations.frozen_networks import frozen, trained


class Net(nn.Module):
    def __init__(self, dims: int = 2, *, bias: bool = True, groups: int = 1, **norm: bool) -> None:
        super().__init__()
        self.conv = getattr(nn, f"Conv{dims}d")(8, 24, 3, bias=bias, groups=groups, stride=2)
        self.norm = getattr(nn, f"BatchNorm{dims}d")(24, eps=1e-3, **norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


def record(compiled: daceml.DaceModule) -> tuple[dict[str, int], list[str]]:
    found = next(p for p in compiled.session.latest.network.passes if p.name == "fold_batch_norms")
    return found.applied, [r.reason for r in found.refused]


@pytest.mark.parametrize(
    ("groups", "bias", "dims"),
    sampled(
        itertools.product((1, 8), (True, False), (1, 2, 3)),
        (1, True, 1),
        (1, False, 2),
        (8, True, 2),
        (8, False, 3),
    ),
)
def test_one_rounding(groups: int, bias: bool, dims: int):
    torch.manual_seed(0)
    net, x = trained(Net(dims, bias=bias, groups=groups)), torch.randn(2, 8, *(13 for _ in range(dims)))
    exact = net.double()(x.double()).detach()
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x.double()), exact, rtol=1e-12, atol=1e-12)
        assert record(compiled) == ({"fold_batch_norms": 1}, [])
        single = frozen(net.float())
        error, eager = (single(x) - exact).square().mean(), (net(x) - exact).square().mean()
    # over 480 draws 0.8 to 1.17 times eager's; of the largest errors, 4 % of the draws are above 1.5 times
    assert error <= 1.25**2 * eager


class Shared(Net):
    """The result of the convolution is read twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(y) + y


class Apart(Net):
    """Something stands between."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.conv(x)))


@pytest.mark.parametrize(
    ("net", "fact"),
    [
        (Shared(), "another operator"),
        (Apart(), "result of a convolution"),
        (Net(affine=False), "parameter or buffer"),
    ],
    ids=["shared", "apart", "without weights"],
)
def test_a_normalization_that_stays(net: nn.Module, fact: str):
    compiled, x = frozen(trained(net)), torch.randn(2, 8, 13, 13)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x))
    applied, (reason,) = record(compiled)
    assert applied == {} and reason == golden()
    assert fact in reason


def test_one_weight_under_two_normalizations():
    class Twice(Net):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.BatchNorm2d(24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(x)) - self.other(self.conv(-x))

    net, x = trained(Twice()), torch.randn(2, 8, 13, 13)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x))
    assert record(compiled) == ({"fold_batch_norms": 2}, [])

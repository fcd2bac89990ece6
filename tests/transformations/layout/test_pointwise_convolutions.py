"""Pointwise convolutions of frozen networks: which run in a loop of our own, and eager's numbers."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.support.sampling import sampled
from tests.transformations.frozen_networks import applied, assert_same, frozen, trained


class Block(nn.Module):
    """A residual of two pointwise convolutions with a window between them, as networks have it."""

    def __init__(
        self, channels: int, wide: int, activation: type[nn.Module], *, stride: int = 1, bias: bool = False
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(8, channels, 3, padding=1)
        self.expand = nn.Conv2d(channels, wide, 1, bias=bias)
        self.norm = nn.BatchNorm2d(wide)
        self.window = nn.Conv2d(wide, wide, 3, stride, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, channels, 1, bias=bias)
        self.last = nn.BatchNorm2d(channels)
        self.shortcut = nn.Conv2d(channels, channels, 1, stride, bias=bias)
        self.activation = activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.stem(x))
        y = self.activation(self.window(self.activation(self.norm(self.expand(x)))))
        return functional.max_pool2d(self.activation(self.last(self.project(y)) + self.shortcut(x)), 2)


def close_to_eager(net: nn.Module, x: torch.Tensor) -> dict[str, int]:
    """What was packed; numbers are no farther from float64's than eager's, with room for another order."""
    compiled = frozen(net)
    with torch.no_grad():
        y, eager = compiled(x), net(x)
        exact = net.double()(x.double())
        net.float()
    theirs = (eager - exact).abs().max()
    assert (y - exact).abs().max() <= 2 * theirs
    return applied(compiled, "pack_weights")


@pytest.mark.parametrize(
    ("channels", "wide", "stride", "bias", "activation"),
    sampled(
        [
            (16, 96, 1, True, nn.ReLU),
            (24, 100, 1, False, nn.ReLU6),
            (33, 65, 1, True, nn.SiLU),
            (64, 97, 2, False, nn.Identity),
            (96, 48, 2, True, nn.SiLU),
        ],
        (24, 100, 1, False, nn.ReLU6),
        (33, 65, 1, True, nn.SiLU),
        (64, 97, 2, False, nn.Identity),
    ),
)
def test_a_block_with_batch_norms(
    channels: int, wide: int, stride: int, bias: bool, activation: type[nn.Module]
):
    net = trained(Block(channels, wide, activation, stride=stride, bias=bias))
    found = close_to_eager(net, torch.randn(2, 8, 57, 55))
    assert found == {"packed Conv": 1, "depthwise Conv": 1, "pointwise Conv": 3}


@pytest.mark.parametrize(
    ("value", "activation"),
    sampled(
        itertools.product(["nan", "inf", "-inf", "1e38"], [nn.ReLU, nn.ReLU6, nn.SiLU]),
        *(("nan", activation) for activation in (nn.ReLU, nn.ReLU6, nn.SiLU)),
        ("inf", nn.ReLU6),
        ("-inf", nn.SiLU),
        ("1e38", nn.ReLU),
    ),
)
def test_what_is_not_finite_is_eagers(value: str, activation: type[nn.Module]):
    net, x = trained(Block(24, 40, activation)), torch.randn(3, 8, 31, 37)
    compiled = frozen(net)
    x[1, 3, 7, 8] = float(value)
    with torch.no_grad():
        assert_same(compiled(x), net(x))
        net.shortcut.weight[3, 1] = float(value)
        x[1, 3, 7, 8] = 1.0
        assert_same(frozen(net)(x), net(x))


def test_a_loop_of_our_own_needs_no_limit():
    """relu keeps NaN in it, so a network that cannot be run again has it as well."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(16, 64, 1), nn.Conv2d(64, 32, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.second(torch.relu(self.first(x))))
            return y.sum((2, 3)) + torch.rand(32)

    net, x = Noisy().eval(), torch.randn(2, 16, 40, 40)
    compiled = frozen(net)
    x[1, 2, 3, 4] = float("nan")
    with torch.no_grad():
        torch.manual_seed(0)
        y = compiled(x)
        torch.manual_seed(0)
        expected = net(x)
    assert applied(compiled) == {"relu": 2}
    assert not compiled.session.latest.program.conditional
    torch.testing.assert_close(y, expected, equal_nan=True, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "convolution",
    [nn.Conv2d(32, 32, 1, padding=1), nn.Conv2d(32, 32, 1, groups=2), nn.Conv2d(32, 32, (1, 2))],
)
def test_other_convolutions_are_left_to_onednn(convolution: nn.Module):
    net = trained(nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU(), convolution, nn.MaxPool2d(2)))
    assert close_to_eager(net, torch.randn(2, 8, 41, 37)) == {"packed Conv": 2}


def test_an_empty_batch():
    net = trained(Block(24, 40, nn.ReLU))
    with torch.no_grad():
        assert frozen(net)(torch.randn(0, 8, 31, 37)).shape == (0, 24, 15, 18)

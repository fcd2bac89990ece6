"""freeze=True: programs of their own with packed weights, what they notice, and what they refuse."""

from __future__ import annotations

import copy

import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError
from tests.support.golden import raises


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.second = nn.Conv2d(32, 16, 3, stride=2)
        self.last = nn.Linear(16 * 9 * 9, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(torch.tanh(x))))
        return self.last(torch.relu(self.second(x)).flatten(1))


def module() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def packed(compiled: nn.Module) -> list[str]:
    """Functions of what the last program prepares."""
    assert isinstance(compiled, daceml.DaceModule)
    return [record.function for record in compiled.session.latest.program.manifest.prepared]


def test_the_numbers_are_those_of_the_module_in_a_program_of_its_own():
    net, x = module(), torch.randn(4, 8, 20, 20)
    plain, frozen = daceml.compile(net, backward=False), daceml.compile(net, backward=False, freeze=True)
    x[0, 0, 3, 3] = float("nan")
    expected = net(x).detach()
    torch.testing.assert_close(plain(x), expected, equal_nan=True)
    torch.testing.assert_close(frozen(x), expected, equal_nan=True)
    made = ["Transpose", "convolution", "convolution", "folded_bias", "folded_weight", "limit"]
    assert sorted(packed(frozen)) == made
    # four rows do not pay for a look at the weight of the product
    assert sorted(packed(plain)) == sorted(["fingerprint", *made[1:]])
    assert plain.session.latest.program.stored.folder != frozen.session.latest.program.stored.folder
    # a copy is frozen, too; another parameter is a new module, and new values in the same one go unnoticed
    other = copy.deepcopy(frozen)
    other.last.weight = nn.Parameter(torch.zeros_like(net.last.weight))
    with torch.no_grad():
        assert torch.equal(other(x[1:]), net.last.bias.detach().expand(3, -1))
        x[0, 0, 3, 3] = 0.0
        before = frozen(x)
        net.first.weight.zero_()
        assert torch.equal(frozen(x), before)
        frozen.reset_sdfg()
        torch.testing.assert_close(frozen(x), net(x), equal_nan=True)


def test_training_is_refused():
    frozen = daceml.compile(module(), backward=False, freeze=True)
    frozen.norm.train()
    with raises(ConfigurationError, "Net", "freeze=True", "norm", "module.eval()"):
        frozen(torch.randn(4, 8, 20, 20))


def test_gradients_are_refused():
    frozen = daceml.compile(module(), freeze=True)
    with raises(ConfigurationError, "Net", "gradient", "torch.no_grad()", "backward=False"):
        frozen(torch.randn(4, 8, 20, 20))


def test_levels_are_needed():
    with raises(ConfigurationError, "freeze=True", "auto_optimize=False"):
        daceml.compile(module(), freeze=True, auto_optimize=False)

"""Subclasses of a decorated class are compiled, too."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import daceml
from daceml import dace_module


@dace_module(backward=False)
class Base(nn.Module):
    """Decorated."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)


class Plain(Base):
    """Inherits everything."""


class Scaled(Base):
    """Overrides forward, and calls the one below."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale = 3.0

    def forward(self, x):
        return super().forward(x) * self.scale


@dace_module(backward=False, dynamic=True)
class Clamped(Scaled):
    """Decorated again, with other options."""

    def forward(self, x):
        return torch.relu(super().forward(x))


EXPECTED = {
    Plain: lambda m, x: nn.functional.linear(x, m.linear.weight, m.linear.bias),
    Scaled: lambda m, x: nn.functional.linear(x, m.linear.weight, m.linear.bias) * 3,
    Clamped: lambda m, x: torch.relu(nn.functional.linear(x, m.linear.weight, m.linear.bias) * 3),
}


@pytest.mark.parametrize("kind", EXPECTED)
@torch.no_grad()
def test_a_subclass_is_compiled_with_all_its_copies(kind: type[Base]):
    x = torch.randn(2, 4)
    module = kind(4)
    expected = EXPECTED[kind](module, x)
    eager = module.session.eager
    copies = [
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        daceml.compile(module, backward=False),
    ]
    for compiled in (module, *copies):
        torch.testing.assert_close(compiled(x), expected)
        assert len(compiled.session.variants) == 1
        assert isinstance(compiled, kind)
    for view in (eager, copy.deepcopy(eager), pickle.loads(pickle.dumps(eager))):
        torch.testing.assert_close(view(x), expected)
        assert not hasattr(view, "_session")


@torch.no_grad()
def test_options_are_those_of_the_nearest_decorator():
    assert Clamped(4).session.options["dynamic"]
    assert not Scaled(4).session.options["dynamic"]


@torch.no_grad()
def test_a_subclass_within_a_larger_module_is_part_of_it():
    outer = nn.Sequential(Scaled(4), nn.ReLU())
    compiled = daceml.compile(outer, backward=False)
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), torch.relu(EXPECTED[Scaled](outer[0], x)))
    assert outer[0].session.variants == ()

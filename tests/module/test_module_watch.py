"""Whatever forward can reach from the module decides which program fits: objects, containers, classes."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import logging
import types
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import daceml
from daceml.errors import RecompileError
from daceml.module.module import compile_module
from tests.support.golden import golden


@dataclasses.dataclass
class Config:
    """A config with another one inside."""

    scale: float = 2.0
    inner: object = None


@dataclasses.dataclass(slots=True)
class Slotted:
    """A config without a dict."""

    bias: float = 1.0


class Configured(nn.Module):
    """Reads values of every kind that an attribute may have."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.config = Config(inner=types.SimpleNamespace(shift=1.0))
        self.arguments = argparse.Namespace(power=1.0)
        self.slotted = Slotted()
        self.flags = {"plain"}
        self.table = np.ones(4, np.float32)
        self.queue = collections.deque([1.0, 2.0])
        self.nested = ([1.0], 2.0)

    def extra(self, x):
        return x

    def forward(self, x):
        y = x * self.config.scale + self.config.inner.shift + self.slotted.bias + self.arguments.power
        y = y + torch.tensor(self.table.tolist()) + sum(self.queue) + self.nested[0][0]
        return self.extra(-y if "negative" in self.flags else y * self.factor)


Change = Callable[[Configured], object]
CHANGES: dict[str, tuple[Change, Change]] = {
    # name: (change, change back)
    "a field": (lambda m: setattr(m.config, "scale", 3.0), lambda m: setattr(m.config, "scale", 2.0)),
    "a field of a field": (
        lambda m: setattr(m.config.inner, "shift", 5.0),
        lambda m: setattr(m.config.inner, "shift", 1.0),
    ),
    "a slot": (lambda m: setattr(m.slotted, "bias", 7.0), lambda m: setattr(m.slotted, "bias", 1.0)),
    "a namespace": (
        lambda m: setattr(m.arguments, "power", 2.0),
        lambda m: setattr(m.arguments, "power", 1.0),
    ),
    "a set": (lambda m: m.flags.add("negative"), lambda m: m.flags.discard("negative")),
    "an array": (lambda m: m.table.__setitem__(0, 9.0), lambda m: m.table.__setitem__(0, 1.0)),
    "a queue": (lambda m: m.queue.append(4.0), lambda m: m.queue.pop()),
    "a list in a tuple": (
        lambda m: m.nested[0].__setitem__(0, 8.0),
        lambda m: m.nested[0].__setitem__(0, 1.0),
    ),
}


@torch.no_grad()
def test_a_change_of_any_value_is_noticed(caplog: pytest.LogCaptureFixture):
    eager = Configured()
    compiled = compile_module(eager, backward=False)
    x = torch.randn(2, 4)
    expected = eager(x)
    compiled(x)
    for change, (apply, undo) in CHANGES.items():
        apply(eager)
        with daceml.stance("fail_on_recompile"), pytest.raises(RecompileError):
            pytest.fail(f"{change} is not noticed: {compiled(x)}")
        undo(eager)
        torch.testing.assert_close(compiled(x), expected, msg=change)
        assert len(compiled.session.variants) == 1, "equal values need one variant"
    for apply, _ in CHANGES.values():
        apply(eager)
    torch.testing.assert_close(compiled(x), eager(x))
    assert len(compiled.session.variants) == 2
    assert not caplog.records


@torch.no_grad()
def test_changes_of_the_class_are_noticed(monkeypatch: pytest.MonkeyPatch):
    eager = Configured()
    compiled = compile_module(eager, backward=False)
    x = torch.randn(2, 4)
    compiled(x)
    monkeypatch.setattr(Configured, "factor", 4.0)
    torch.testing.assert_close(compiled(x), eager(x))
    monkeypatch.setattr(Configured, "extra", lambda self, y: y.neg())
    torch.testing.assert_close(compiled(x), eager(x))


class Holder(nn.Module):
    """Holds tensors and a layer where nn.Module does not see them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4)]
        self.config = types.SimpleNamespace(shift=torch.ones(4))
        self.plain = torch.ones(4)

    def forward(self, x):
        return self.layers[0](x) + self.config.shift, self.plain


@torch.no_grad()
def test_tensors_in_attributes_are_read_where_they_are():
    eager = Holder()
    compiled = compile_module(eager, backward=False)
    x = torch.randn(2, 4)
    compiled(x)
    eager.layers[0].weight.data.add_(1)
    eager.layers[0].bias.mul_(2)
    eager.config.shift.data[0] = 7
    ours, theirs = compiled(x), eager(x)
    torch.testing.assert_close(ours[0], theirs[0])
    assert ours[1] is eager.plain
    assert len(compiled.session.variants) == 1
    eager.layers[0].weight = nn.Parameter(torch.zeros(4, 4))
    torch.testing.assert_close(compiled(x)[0], eager(x)[0])


class ReadsAValue(nn.Module):
    """Makes a number of a tensor, which the trace takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.tensor([2.0])

    def forward(self, x):
        return x * self.scale.item() + self.scale


@torch.no_grad()
def test_values_read_in_forward_are_noticed():
    eager = ReadsAValue()
    compiled = compile_module(eager, backward=False)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), eager(x))
    eager.scale.add_(1)
    torch.testing.assert_close(compiled(x), eager(x))


class ListsItsWeights(nn.Module):
    """Reaches its parameters through a list."""

    def __init__(self, *, reads_a_value: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0]))
        self.weights = [self.weight]
        self.reads_a_value = reads_a_value

    def forward(self, x):
        return x * (self.weights[0].item() if self.reads_a_value else self.weights[0]) + self.weight


@torch.no_grad()
@pytest.mark.parametrize("reads_a_value", [False, True])
def test_parameters_in_a_list_change_a_program_only_where_their_value_was_read(reads_a_value: bool):
    eager = ListsItsWeights(reads_a_value=reads_a_value)
    compiled = compile_module(eager, backward=False)
    x = torch.randn(3)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), eager(x))
        eager.weight.add_(1)
    assert len(compiled.session.variants) == (3 if reads_a_value else 1)
    eager.weights[0] = nn.Parameter(torch.tensor([9.0]))
    torch.testing.assert_close(compiled(x), eager(x))


class Counts(nn.Module):
    """Changes a tensor in an attribute that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(3)

    def forward(self, x):
        self.count.add_(1)
        return x * self.count


@torch.no_grad()
def test_a_plain_tensor_may_be_changed_in_place():
    eager, other = Counts(), Counts()
    compiled = compile_module(eager, backward=False)
    x = torch.randn(3)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), other(x))
    assert torch.equal(eager.count, other.count)
    assert len(compiled.session.variants) == 1


class Remembers(nn.Module):
    """Changes an object of its own at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.statistics = types.SimpleNamespace(calls=0, table=np.zeros(2))

    def forward(self, x):
        self.statistics.calls += 1
        self.statistics.table[1] += 2
        return x + self.statistics.calls


@torch.no_grad()
def test_a_forward_that_changes_an_object_runs_eagerly(caplog: pytest.LogCaptureFixture):
    compiled = compile_module(Remembers(), backward=False)
    x = torch.zeros(2)
    with caplog.at_level(logging.WARNING):
        assert [compiled(x)[0].item() for _ in range(3)] == [1, 2, 3]
    assert compiled.statistics.calls == 3
    assert compiled.statistics.table.tolist() == [0, 6]
    (message,) = caplog.messages
    assert "Remembers" in message and "'statistics" in message and message == golden()


class Words(nn.Module):
    vocabulary: dict[str, int]

    def forward(self, x):
        return x * len(self.vocabulary)


@torch.no_grad()
def test_a_huge_attribute_is_not_polled(caplog: pytest.LogCaptureFixture):
    eager = Words()
    eager.vocabulary = {f"word {i}": i for i in range(30_000)}
    compiled = compile_module(eager, backward=False)
    with caplog.at_level(logging.WARNING):
        compiled(torch.ones(3))
    (message,) = caplog.messages
    assert "vocabulary" in message and message == golden()


class Accumulates(nn.Module):
    """Begins with nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.total = None

    def forward(self, x):
        self.total = x if self.total is None else torch.cat([self.total, x])
        return self.total * 1


class Keeps(nn.Module):
    """Keeps a tensor for whoever looks at it, and does not read it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = x * 2
        return x + 1


@torch.no_grad()
def test_state_that_begins_with_none():
    eager, other = Accumulates(), Accumulates()
    compiled = compile_module(eager, backward=False)
    for x in (torch.ones(2), torch.zeros(1), torch.ones(3)):
        torch.testing.assert_close(compiled(x), other(x))
    kept = compile_module(Keeps(), backward=False)
    for x in (torch.ones(2), torch.zeros(2), torch.full((2,), 3.0), torch.ones(2)):
        assert torch.equal(kept(x), x + 1)
        assert torch.equal(kept.last, x * 2)
    assert len(kept.session.variants) == 1


def test_hooks_of_all_modules_see_every_module(caplog: pytest.LogCaptureFixture):
    eager = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    compiled = compile_module(eager, backward=False)
    x = torch.ones(2, 3)

    def silence(module, inputs, output):
        return output * 0 if isinstance(module, nn.Linear) else None

    with torch.no_grad():
        before = compiled(x)
        handle = nn.modules.module.register_module_forward_hook(silence)
        try:
            with caplog.at_level(logging.WARNING):
                assert not compiled(x).any()
        finally:
            handle.remove()
        assert torch.equal(compiled(x), before)
    (message,) = caplog.messages
    assert "Sequential" in message and message == golden()


class MakesTensors(nn.Module):
    """Makes tensors without saying of which type."""

    def forward(self, x):
        return torch.ones(2) * 1.5, torch.arange(3.0), x * 1.0, torch.full((2,), 0.1), torch.linspace(0, 1, 4)


@torch.no_grad()
def test_the_default_type_decides_what_tensors_are():
    eager = MakesTensors()
    compiled = compile_module(eager, backward=False)
    x = torch.arange(3)
    for kind in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(kind)
        try:
            for ours, theirs in zip(compiled(x), eager(x), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        finally:
            torch.set_default_dtype(torch.float32)

"""Objects among the arguments, such as a cache of keys and values: forward reads and changes them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from daceml.errors import CallError, DeploymentError
from daceml.module.module import DaceModule
from tests.support.golden import raises


class Layer:
    """Keys of the tokens so far; a tensor for each call, as most libraries have it."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None
        self.kind: torch.dtype | None = None

    def update(self, keys: torch.Tensor) -> torch.Tensor:
        self.kind = keys.dtype
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], dim=1)
        return self.keys


class Cache:
    def __init__(self, scale: float = 1.0) -> None:
        self.layers: list[Layer] = []
        self.scale = scale
        self.seen = 0
        self.done: dict[int, bool] = {}

    def update(self, place: int, keys: torch.Tensor) -> torch.Tensor:
        while len(self.layers) <= place:
            self.layers.append(Layer())
        self.done[place] = True
        return self.layers[place].update(keys)


class Decoder(nn.Module):
    """Attention of new tokens to all tokens so far, in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor, cache: Cache) -> dict[str, Any]:
        for place, layer in enumerate(self.layers):
            keys = cache.update(place, layer(x))
            x = x + torch.softmax(x @ keys.mT * cache.scale, dim=-1) @ keys
        return {"x": x, "cache": cache}


class Counting(Decoder):
    """Its cache counts tokens in a number of Python, which goes into positions."""

    def forward(self, x: torch.Tensor, cache: Cache) -> dict[str, Any]:
        x = x + torch.arange(cache.seen, cache.seen + x.shape[1])[:, None] / 10
        cache.seen += x.shape[1]
        return super().forward(x, cache)


def contents(cache: Cache) -> list[Any]:
    numbers = [layer.kind for layer in cache.layers], cache.scale, cache.seen, cache.done
    return [*(layer.keys for layer in cache.layers), repr(numbers)]


def same(ours: Any, theirs: Any) -> None:
    """Tensors are close, everything else is equal."""
    leaves, structure = pytree.tree_flatten(ours)
    expected, wanted = pytree.tree_flatten(theirs)
    assert structure == wanted
    for one, other in zip(leaves, expected, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other and type(one) is type(other)


def steps(module: nn.Module, eager: nn.Module, calls: int, *, tokens: int = 4) -> None:
    """Several tokens, then one at a time; compiled calls leave what eager ones leave."""
    ours, theirs = Cache(), Cache()
    layers = ours.layers
    for call in range(calls):
        x = torch.randn(2, 1 if call else tokens, 8)
        result, expected = module(x, ours), eager(x, theirs)
        assert result["cache"] is ours and ours.layers is layers
        torch.testing.assert_close(result["x"], expected["x"])
        same(contents(ours), contents(theirs))


def compiled(eager: nn.Module, **options: Any) -> DaceModule:
    module = daceml.compile(eager, fullgraph=True, **options)
    assert isinstance(module, DaceModule)
    return module


@pytest.mark.parametrize("kind", [Decoder, Counting])
def test_a_cache_grows_in_three_programs(kind: type[Decoder], caplog: pytest.LogCaptureFixture):
    eager = kind()
    module = compiled(eager, backward=False)
    with caplog.at_level(logging.WARNING, logger="daceml"):
        steps(module, eager, 40)
    assert len(module.session.variants) == 3
    assert not caplog.messages  # 40 lengths are not 40 kinds of inputs
    steps(module, eager, 4)
    assert len(module.session.variants) == 3


def test_gradients_go_through_a_cache():
    eager = Decoder().double()
    module, x = compiled(eager), torch.randn(3, 2, 4, 8, dtype=torch.float64)
    found = []
    for call in (module, eager):
        eager.zero_grad()
        cache = Cache()
        total = sum(call(part, cache)["x"].square().sum() for part in x)
        total.backward()
        found.append([p.grad for p in eager.parameters()])
    torch.testing.assert_close(*found)


def test_what_forward_reads_of_an_object_guards_its_programs(monkeypatch: pytest.MonkeyPatch):
    eager = Decoder()
    module, x = compiled(eager, backward=False), torch.randn(2, 3, 8)

    def agree(scale: float) -> None:
        torch.testing.assert_close(module(x, Cache(scale))["x"], eager(x, Cache(scale))["x"])

    agree(1.0)
    agree(0.5)
    assert len(module.session.variants) == 2
    agree(1.0)
    assert len(module.session.variants) == 2
    monkeypatch.setattr(Layer, "update", lambda self, keys: 2 * keys)
    agree(1.0)


class InPlace(nn.Module):
    """A cache of fixed length, which forward writes to in place."""

    def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
        cache.length = cache.length.to(x.device)  # the same tensor
        places = torch.arange(x.shape[1]) + cache.length
        cache.length.add_(x.shape[1])
        cache.keys.index_copy_(1, places, x)
        return cache.keys.sum(1)


class Fixed:
    def __init__(self) -> None:
        self.keys, self.length = torch.zeros(2, 6, 3), torch.tensor(0)


def test_a_cache_that_is_written_in_place_stays_the_same_memory():
    eager = InPlace()
    module = compiled(eager, backward=False)
    ours, theirs = Fixed(), Fixed()
    keys, length = ours.keys, ours.length
    for tokens in (2, 1, 1, 1):
        x = torch.randn(2, tokens, 3)
        with torch.inference_mode():
            torch.testing.assert_close(module(x, ours), eager(x, theirs))
        assert ours.keys is keys and ours.length is length
        torch.testing.assert_close((keys, length), (theirs.keys, theirs.length))
    assert len(module.session.variants) == 2


class Bag:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


class Runs(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _removes(x: torch.Tensor, bag: Bag) -> torch.Tensor:
    del bag.old
    bag.new = {"y": x + 1, "bag": bag, "again": Bag(z=x * 2, kind=x.dtype, at=x.device)}
    return bag.new["y"] * 2


def _swaps(x: torch.Tensor, bag: Bag) -> Bag:
    bag.one, bag.other = bag.other, bag.one
    return bag


def _counts(x: torch.Tensor, bag: dict[str, Any], names: list[Any]) -> torch.Tensor:
    bag["sum"] = bag["sum"] + x
    bag["calls"] = "many"
    names.append(x * 3)
    return bag["sum"] * 2


def shown(value: Any) -> Any:
    """A value with objects as dicts, each of them once."""
    seen: list[Any] = []

    def show(value: Any) -> Any:
        if isinstance(value, Bag):
            if any(value is other for other in seen):
                return "seen"
            seen.append(value)
            return show(vars(value))
        if isinstance(value, dict):
            return {key: show(part) for key, part in value.items()}
        return [show(part) for part in value] if isinstance(value, list | tuple) else value

    return show(value)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (_removes, lambda x: (x, Bag(old=x, kept=3))),
        (_swaps, lambda x: (x, Bag(one=[x, 1], other={"x": x * 2}))),
        (_counts, lambda x: (x, {"sum": x * 2}, ["a"])),
        (lambda x: Bag(y=x + 1, part=Bag(z=x - 1, shape=x.shape), name="n"), lambda x: (x,)),
        (lambda x, bag: (bag.part, x * bag.part.scale), lambda x: (x, Bag(part=Bag(scale=2.0)))),
    ],
    ids=["attributes come and go", "attributes swap", "a dict and a list", "new objects", "an object inside"],
)
def test_objects_are_left_as_eager_leaves_them(function: Callable[..., Any], arguments: Callable[..., Any]):
    x = torch.randn(3)
    module = compiled(Runs(function), backward=False)
    for _ in range(2):
        ours, theirs = arguments(x), arguments(x)
        identities = [id(argument) for argument in ours]
        same(shown((module(*ours), *ours)), shown((function(*theirs), *theirs)))
        assert identities == [id(argument) for argument in ours]
    assert len(module.session.variants) == 1


def test_an_object_in_two_places_is_no_argument_of_a_program(caplog: pytest.LogCaptureFixture):
    def function(one: Bag, other: Bag) -> torch.Tensor:
        one.x = one.x + 1
        return other.x * 2

    bag = Bag(x=torch.ones(2))
    with raises(CallError, "lead to one Bag twice"):
        compiled(Runs(function))(bag, bag)
    with caplog.at_level(logging.WARNING, logger="daceml"):
        result = daceml.compile(Runs(function), fullgraph=False)(bag, bag)
    assert result.tolist() == [4, 4]


class Content(dict[str, Any]):
    """More than its attributes."""


def test_only_objects_that_are_their_attributes_are_arguments():
    module = compiled(Runs(lambda x, held: x * 2))
    for held in (Content(x=1), Bag(lock=Content())):
        with raises(CallError, "is a Content"):
            module(torch.ones(2), held)


def test_a_library_has_no_objects_for_arguments(tmp_path: Any):
    with raises(DeploymentError, "Cache"):
        daceml.export(Decoder().eval(), torch.randn(1, 2, 8), Cache(), to=tmp_path)

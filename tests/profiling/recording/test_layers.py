"""Layers as annotations: which names there are, and that nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import daceml
from daceml.profiling.recording.layers import PREFIX, layer_names, layers_marked


class Twice(nn.Module):
    """One linear layer under two names, called under both."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.last = nn.Sequential(nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.again(self.first(x)))


def names(model: nn.Module) -> list[tuple[str, ...]]:
    return list(layer_names(model).values())


def recorded(action: Callable[[], Any]) -> list[Any]:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        action()
    return sorted(profiler.events(), key=lambda event: event.time_range.start)


def marks(events: list[Any]) -> list[str]:
    return [event.name.removeprefix(PREFIX) for event in events if event.name.startswith(PREFIX)]


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_layers_go_by_their_qualified_names_and_the_outermost_by_its_class():
    assert names(Twice()) == [("Twice",), ("first", "again"), ("last",), ("last.0",)]


def test_a_module_that_holds_itself_ends_somewhere():
    model = nn.Sequential(nn.ReLU())
    model[0].register_module("owner", model)
    assert names(model) == [("Sequential",), ("0",)]


def test_the_inside_of_a_compiled_module_is_left_alone():
    assert names(daceml.compile(nn.Sequential(nn.ReLU()))) == [("Sequential",)]
    outer = nn.Sequential(daceml.compile(nn.Sequential(nn.ReLU())), torch.compile(nn.Sequential(nn.ReLU())))
    assert names(outer) == [("Sequential",), ("0",), ("1",)]


def test_every_call_is_an_annotation_around_what_it_calls():
    model = Twice()
    with layers_marked(model):
        events = recorded(lambda: model(torch.randn(2, 4)))
    assert marks(events) == ["Twice", "first", "first", "last", "last.0"]
    products = [event for event in events if event.name == "aten::linear"]
    assert [event.cpu_parent.name for event in products] == [PREFIX + "first"] * 2
    assert hooks(model) == 0
    assert marks(recorded(lambda: model(torch.randn(2, 4)))) == []


def test_a_forward_that_raises_closes_its_annotations():
    model = Twice()

    def run() -> None:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(torch.randn(2, 5))
        model(torch.randn(2, 4))

    with layers_marked(model):
        events = recorded(run)
    assert marks(events) == ["Twice", "first", "Twice", "first", "first", "last", "last.0"]
    outer = [event for event in events if event.name == PREFIX + "Twice"]
    assert all(event.cpu_parent is None for event in outer)
    assert hooks(model) == 0


def test_hooks_are_removed_where_the_run_raises():
    model = Twice()
    with pytest.raises(KeyboardInterrupt), layers_marked(model):
        raise KeyboardInterrupt
    assert hooks(model) == 0


def test_a_pass_that_was_under_way_is_let_through():
    model = Twice()
    around = layers_marked(model)
    handle = model.last.register_forward_pre_hook(lambda *_: around.__enter__())
    model(torch.randn(2, 4))
    handle.remove()
    around.__exit__(None, None, None)
    assert hooks(model) == 0

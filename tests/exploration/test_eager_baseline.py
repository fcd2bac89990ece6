"""PyTorch beside the standard recipe: the same call, and the model stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import daceml
from daceml.exploration.eager_baseline import EagerRun
from daceml.exploration.variant_timings import Programs
from daceml.tuning.model_call import Subject


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh())


def test_a_call_is_that_of_the_module():
    model, x = _model().eval(), torch.randn(4, 6)
    run = EagerRun(Subject(model, (x,), {}, training=False))
    found = run()
    assert isinstance(found, torch.Tensor) and not found.requires_grad
    torch.testing.assert_close(found, model(x))


def test_a_training_step_has_gradients_and_leaves_the_model_alone():
    model, x = _model().train(), torch.randn(4, 6, requires_grad=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = EagerRun(Subject(model, (x,), {}, training=True))()
    assert isinstance(found, tuple)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name])
    expected = torch.autograd.grad(model(x).sum(), (*model.parameters(), x))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_an_exploration_tells_it():
    model, x = _model().eval(), torch.randn(4, 6)
    found = daceml.explore(model, x, budget=30, measurements=0, most=1).exploration
    assert found.eager is not None and found.eager.ratio > 0
    assert found.eager.ms == found.eager.ratio * (
        found.standard.measured.ms if found.standard.measured else 0
    )


def test_it_is_timed_without_hooks_of_ours(monkeypatch: pytest.MonkeyPatch):
    inside, seen = list[int](), list[int]()

    @contextmanager
    def counted() -> Iterator[None]:
        inside.append(1)
        yield
        inside.pop()

    monkeypatch.setattr("daceml.exploration.variant_timings.unhooked", counted)
    monkeypatch.setattr(EagerRun, "__call__", lambda _: seen.append(len(inside)))
    with Programs.measured(
        Subject(_model().eval(), (torch.randn(4, 6),), {}, training=False), limit_s=0.3
    ) as made:
        assert made.eager(limit_s=60.0) is not None
        assert set(seen) == {0}
        assert made.eager(limit_s=0.0) is None
    monkeypatch.setattr("daceml.exploration.variant_timings.available_bytes", lambda: 0)
    assert made.eager(limit_s=60.0) is None


class Uncopied(nn.Module):
    def __deepcopy__(self, memo: object) -> Uncopied:
        raise RuntimeError("there is one of these")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


def test_what_cannot_be_copied_is_explored_all_the_same():
    found = daceml.explore(
        Uncopied().eval(), torch.randn(4, 6), budget=30, measurements=0, most=1
    ).exploration
    assert found.eager is None and found.standard.measured is not None

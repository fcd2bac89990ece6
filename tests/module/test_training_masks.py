"""Dropout in training: masks at their rate, independent, drawn like eager's, and the same going back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import daceml
from tests.support.exported_models import Lambda

# Four standard deviations of a rate among 40,000 draws: sqrt(0.25 / 40000) = 0.0025.
TOLERANCE_OF_RATES = 0.01


def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two masks that see nothing of each other; halves are exact, so that masks can be read off products."""
    return F.dropout(x, 0.25), F.dropout(x * 2, 0.5)


def step(module: Any, x: torch.Tensor, seed: int | None = None) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Results of one call, and the gradient of their sum."""
    if seed is not None:
        torch.manual_seed(seed)
    leaf = x.clone().requires_grad_()
    results = module(leaf)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    (gradient,) = torch.autograd.grad(torch.stack(results).sum(), leaf)
    return [y.detach() for y in results], gradient


@pytest.fixture(autouse=True)
def _own_generator():
    with torch.random.fork_rng(devices=[]):
        yield


def test_masks_keep_their_rate_are_independent_and_drawn_anew():
    compiled, x = daceml.compile(Lambda(both)), torch.ones(200, 200)
    (first, second), gradient = step(compiled, x, seed=0)
    (again, _), _ = step(compiled, x)
    a, b, c = (y == 0 for y in (first, second, again))
    for dropped, rate in ((a, 0.25), (b, 0.5), (a & b, 0.125), (c, 0.25), (a & c, 0.0625)):
        assert abs(dropped.float().mean().item() - rate) < TOLERANCE_OF_RATES
    # neighbours in a row and in a column, too
    for one, other in ((a[:, 1:], a[:, :-1]), (a[1:], a[:-1])):
        assert abs((one & other).float().mean().item() - 0.0625) < TOLERANCE_OF_RATES
    # going back, each mask is that of the way there
    torch.testing.assert_close(gradient, first + second)


def test_masks_are_those_of_eager_with_the_same_seed():
    compiled, x = daceml.compile(Lambda(both)), torch.randn(30, 7)
    for seed in (1, 2):
        found, gradient = step(compiled, x, seed)
        wanted, eager = step(both, x, seed)
        for y, z in zip((*found, gradient), (*wanted, eager), strict=True):
            torch.testing.assert_close(y, z)


class Layer(nn.Module):
    """Dropout between operators that it could be fused with."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(7, 5), nn.Dropout(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.linear(x)).tanh()


def test_dropout_of_nothing_is_no_dropout():
    module, x = Layer(0.0), torch.randn(4, 7)
    plain = nn.Sequential(module.linear, nn.Tanh())
    ((y,), gradient), ((z,), without) = (step(daceml.compile(m), x, seed=0) for m in (module, plain))
    assert torch.equal(y, z)
    assert torch.equal(gradient, without)


def test_dropout_of_everything_leaves_nothing_and_no_gradient():
    (y,), gradient = step(daceml.compile(Layer(1.0)), torch.randn(4, 7))
    assert not y.any()
    assert not gradient.any()


def noise(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Draws that take from x its shape, its numbers as probabilities, or its numbers as means."""
    return (
        x.sin() + torch.randn_like(x) * x,
        x * torch.bernoulli(x.sigmoid()) + torch.normal(x, 2.0),
    )


def test_gradients_go_past_what_is_drawn_and_not_into_it():
    compiled, x = daceml.compile(Lambda(noise)), torch.randn(4, 7)
    for y, z in zip(step(compiled, x, 1), step(noise, x, 1), strict=True):
        torch.testing.assert_close(y, z, rtol=1e-5, atol=1e-5)
    assert compiled.session.latest.backward is not None


def test_probabilities_get_the_gradient_zero():
    def sampled(p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.bernoulli(p.sigmoid()), p.detach()

    (y, _), gradient = step(daceml.compile(Lambda(sampled)), torch.randn(4, 7), 1)
    assert set(y.unique().tolist()) == {0, 1}
    assert not gradient.any()

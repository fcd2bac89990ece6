"""Results that a loss does not use: no gradients come from them, not even infinity times zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.errors import RecompileError
from daceml.runtime.autograd import Narrowed
from tests.support.golden import raises
from tests.support.sampling import sampled
from tests.support.trained_twins import compiled_backward, twins


class Results(nn.Module):
    """Several results; the derivative of the second is infinite at 0, the third has a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.own = nn.Linear(3, 3).double(), nn.Linear(3, 2).double()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.shared(x).exp()
        return {"plain": hidden * x, "root": x.sqrt(), "own": self.own(hidden)}


def gradients(module: nn.Module, x: torch.Tensor, used: list[str], times: int = 1) -> list[Any]:
    leaves = [x.clone().requires_grad_(), *module.parameters()]
    results = module(leaves[0])
    loss = sum((results[name] ** 2).sum() for name in used)
    for _ in range(times - 1):
        torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)  # pyright: ignore
    return list(torch.autograd.grad(loss, leaves, allow_unused=True))  # pyright: ignore


@pytest.mark.parametrize("recompute", sampled(["none", "cheap"], "cheap"))
def test_only_what_is_used_has_gradients(recompute: str) -> None:
    torch.manual_seed(0)
    compiled, eager = twins(Results(), recompute=recompute)
    x = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64)
    for used in (["plain"], ["own"], ["plain", "own"], ["plain"]):
        ours, theirs = gradients(compiled, x, used), gradients(eager, x, used)
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert compiled_backward(compiled)
    (variant,) = compiled.session.variants
    assert sorted(variant.backward._narrowed) == [(0,), (0, 2), (2,)]
    assert all(isinstance(n, Narrowed) for n in variant.backward._narrowed.values())


def test_infinity_is_right_where_it_is_used() -> None:
    compiled, eager = twins(Results())
    x = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64)
    used = ["plain", "root", "own"]
    for a, b in zip(gradients(compiled, x, used), gradients(eager, x, used), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_graph_is_kept_for_a_second_time() -> None:
    compiled, eager = twins(Results())
    x = torch.ones(2, 3, dtype=torch.float64)
    ours, theirs = gradients(compiled, x, ["own"], times=2), gradients(eager, x, ["own"], times=2)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_with_a_budget_zeros_stand_for_what_is_not_used() -> None:
    """What is stored belongs to the whole backward pass."""
    compiled, eager = twins(Results(), recompute="budget", memory_budget_bytes=1_000_000)
    x = torch.ones(2, 3, dtype=torch.float64)
    for a, b in zip(gradients(compiled, x, ["plain"]), gradients(eager, x, ["plain"]), strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


class Heads(nn.Module):
    """Two heads of the same kinds of operators, whose rules keep something of the forward pass."""

    def __init__(self, second: int) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 2))
        self.two = nn.Sequential(
            nn.Linear(5, second), nn.ReLU(), nn.BatchNorm1d(second), nn.Linear(second, 2)
        )
        self.norm = nn.LayerNorm(5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        images = x.reshape(1, 1, *x.shape)
        pools = [functional.max_pool2d(i, 2) for i in (images, images.flip(3))]
        norms = [functional.layer_norm(i, (5,)) for i in (x * 2, x * x - 1)]
        return self.one(x), self.two(x), *pools, *norms, self.norm(x)


@pytest.mark.parametrize("second", sampled([7, 3], 7))
def test_what_was_saved_for_one_result_is_not_taken_for_another(second: int) -> None:
    torch.manual_seed(0)
    compiled, eager = twins(Heads(second).double().train())
    x = torch.randn(4, 5, dtype=torch.float64)
    for used in range(7):
        found = []
        for module in (compiled, eager):
            leaves = [x.clone().requires_grad_(), *module.parameters()]
            loss = (module(leaves[0])[used] ** 3).sum()
            found.append(torch.autograd.grad(loss, leaves, allow_unused=True))  # pyright: ignore
        for ours, theirs in zip(*found, strict=True):
            assert (ours is None) == (theirs is None)
            if theirs is not None:
                torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    (variant,) = compiled.session.variants
    assert all(isinstance(n, Narrowed) for n in variant.backward._narrowed.values())
    assert len(variant.backward._narrowed) == 7


def test_a_stance_holds_for_backward_passes_too() -> None:
    compiled, _ = twins(Results())
    results = compiled(torch.ones(2, 3, dtype=torch.float64, requires_grad=True))
    with (
        daceml.stance("fail_on_recompile"),
        raises(RecompileError, "backward", "fail_on_recompile"),
    ):
        results["own"].sum().backward()

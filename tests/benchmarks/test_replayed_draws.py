"""Draws of one run in another: the same masks in another precision, and complaints where the runs differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks.replayed_draws import RecordedDraws, ReplayedDraws
from tests.support.golden import raises


def masks(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Draws in place, of a type's own numbers, through autograd, and in attention; with one that is fixed."""
    q = x.reshape(1, 2, 3, 4)
    return (
        F.dropout(x, 0.3),
        F.dropout(x.t(), 0.5),
        x * torch.floor(0.8 + torch.rand(6, 1, dtype=x.dtype)),
        F.scaled_dot_product_attention(q, q, q, dropout_p=0.4),
        F.scaled_dot_product_attention(q, q, q),
    )


def recorded(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[Any, RecordedDraws]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        with RecordedDraws() as draws:
            return run(x), draws


def test_another_precision_gets_the_same_masks():
    x = torch.linspace(-1, 1, 24).reshape(6, 4)
    single, draws = recorded(masks, x.requires_grad_())
    assert len(draws.draws) == 4
    with ReplayedDraws(draws.draws):
        double = masks(x.detach().double())
    for one, other in zip(single, double, strict=True):
        assert other.dtype == torch.float64
        torch.testing.assert_close(one, other.float(), rtol=1e-6, atol=1e-6)


def test_recording_draws_what_is_drawn_without_it():
    x = torch.ones(6, 4)
    single, _ = recorded(masks, x)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        assert all(torch.equal(a, b) for a, b in zip(single, masks(x), strict=True))


def test_a_run_that_draws_otherwise_is_refused():
    _, recording = recorded(F.dropout, torch.ones(3))
    draws = recording.draws
    with raises(RuntimeError, "1 recorded"), ReplayedDraws(draws):
        pass
    with raises(RuntimeError, "aten::rand", "(3,)", "aten::bernoulli_"), ReplayedDraws(draws):
        torch.rand(3)
    with raises(RuntimeError, "aten::bernoulli_", "(3,)"), ReplayedDraws([]):
        F.dropout(torch.ones(3))


def test_an_operator_that_computes_with_its_draws_cannot_be_recorded():
    with raises(NotImplementedError, "aten.multinomial"):
        recorded(lambda x: torch.multinomial(x, 2), torch.ones(3))

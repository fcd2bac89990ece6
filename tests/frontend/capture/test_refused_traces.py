"""Random numbers that forward draws and does not use move the generator as they do in an eager call."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.eager_twin import unlike_eager


def numbers(x):
    torch.rand(3)
    return functional.dropout(x, 0.5, True)


def a_mask(x):
    functional.dropout(x, 0.5, True)
    return functional.dropout(x, 0.5, True)


def in_place(x):
    x.clone().normal_()
    return x + torch.rand(4)


def what_nothing_follows_from(x):
    with torch.no_grad():
        torch.bernoulli(x.sigmoid()) * 2
    return x * 3


@pytest.mark.parametrize("function", [numbers, a_mask, in_place, what_nothing_follows_from])
@pytest.mark.parametrize("gradients", [False, True])
def test_unused_draws_move_the_generator(function, gradients):
    x = torch.linspace(-1.0, 1.0, 4)
    assert unlike_eager(function, x, gradients=gradients, one_program=False, random=True) == []


def changed_and_read(x):
    noise = torch.empty(4)
    noise[:2].uniform_()
    noise[2:].normal_()
    return x + noise.roll(1)


def of_operators_that_draw_nothing(x):
    functional.dropout(x, 0.5, False)
    functional.dropout(x, 0.0, True)
    functional.rrelu(x, training=False)
    return x + torch.rand(4)


@pytest.mark.parametrize("function", [changed_and_read, of_operators_that_draw_nothing])
def test_what_is_used_is_one_program(function):
    assert unlike_eager(function, torch.linspace(-1.0, 1.0, 4), random=True) == []

"""Operators that return their operand itself in an eager call, and operators that never do."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.eager_twin import unlike_eager

X = torch.arange(-3.0, 3.0).reshape(2, 3)

ITSELF = {
    "dropout in evaluation": lambda y: functional.dropout(y, 0.5, False),
    "dropout of nothing": lambda y: functional.dropout(y, 0.0, True),
    "alpha_dropout": lambda y: functional.alpha_dropout(y, 0.5, False),
    "type_as": lambda y: y.type_as(y),
    "broadcast_tensors": lambda y: torch.broadcast_tensors(y, y[0])[0],
    "atleast_1d": torch.atleast_1d,
    "cartesian_prod": lambda y: torch.cartesian_prod(y.reshape(-1)),
}
COPIES = {
    "channel_shuffle": lambda y: functional.channel_shuffle(y[:, :, None], 1),
}


@pytest.mark.parametrize("function", [*ITSELF.values(), *COPIES.values()], ids=[*ITSELF, *COPIES])
@pytest.mark.parametrize("gradients", [False, True])
def test_what_an_operator_returns_is_or_is_not_its_operand(function, gradients):
    def changed(x):
        y = x * 2
        z = function(y)
        z.add_(1)
        return z, y

    assert unlike_eager(function, X, gradients=gradients) == []
    assert unlike_eager(lambda x: (function(x)[:1], x), X, gradients=gradients) == []
    assert unlike_eager(changed, X, gradients=gradients) == []


@pytest.mark.parametrize("function", ITSELF.values(), ids=ITSELF)
def test_a_change_of_a_view_of_it_changes_the_argument(function):
    assert unlike_eager(lambda x: function(x).view(-1).relu_(), X) == []


def test_operands_are_returned_within_a_region_without_gradients():
    def function(x):
        with torch.no_grad():
            y = functional.dropout(x * 2, 0.5, False)
            z = y[:1]
            z.add_(1)
        return x * y, z

    assert unlike_eager(function, X, gradients=True) == []

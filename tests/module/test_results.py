"""Results besides fresh tensors: sizes, numbers, and tensors that are the very ones that were passed."""

from __future__ import annotations

import pytest
import torch

from tests.support.eager_twin import unlike_eager

X = torch.arange(6.0).reshape(2, 3)


def test_a_size_stays_a_size():
    assert unlike_eager(lambda x: x.shape, X) == []
    assert (
        unlike_eager(lambda x: {"shape": x.shape, "strides": x.stride(), "y": [x * 2, (x.shape,)]}, X) == []
    )
    assert unlike_eager(lambda x: (x[:1] * 2, x.shape, x.size(0)), X, dynamic=True) == []


@pytest.mark.parametrize(
    "function",
    [lambda x: x.sum().item(), lambda x: x[0].tolist(), lambda x: (x * 2, {"n": x.max().item()})],
    ids=["item", "tolist", "item in a dict"],
)
def test_values_of_tensors_are_numbers(function):
    assert unlike_eager(function, X, one_program=False) == []
    assert unlike_eager(function, X.long(), one_program=False) == []


@pytest.mark.parametrize(
    "function",
    [
        torch.positive,
        torch.resolve_conj,
        torch.resolve_neg,
        torch.conj,
        torch.conj_physical,
        torch.real,
        torch.atleast_1d,
        torch.atleast_2d,
        torch.atleast_3d,
        lambda x: x.contiguous(),
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_an_operator_with_nothing_to_do_returns_its_operand(function, gradients):
    assert unlike_eager(function, X, gradients=gradients) == []
    assert unlike_eager(lambda x: function(x * 2).add(1), X, gradients=gradients) == []

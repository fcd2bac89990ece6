"""Arguments and buffers whose shape forward changes in place: the caller's own tensor has it after."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from tests.support.eager_twin import unlike_eager


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.squeeze_(0),
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0).mul_(2),
        lambda x: x.transpose_(0, 1).sum(),
        lambda x: x.swapaxes_(0, 1) + 1,
    ],
    ids=["squeeze_", "t_", "unsqueeze_", "transpose_", "swapaxes_"],
)
def test_an_argument_changes_its_shape(function):
    for x in (torch.ones(1, 3), torch.arange(6.0).reshape(2, 3)):
        assert unlike_eager(function, x, one_program=False) == []


def test_a_computed_value_may_change_its_shape_within_a_program():
    assert unlike_eager(lambda x: (x * 2).t_(), torch.arange(6.0).reshape(2, 3)) == []


def test_a_buffer_changes_its_shape():
    class Turning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turned", torch.ones(2, 3))

        def forward(self, x):
            self.turned.t_()
            return x + 1

    module = Turning()
    compiled = daceml.compile(module, fullgraph=False)
    for shape in ((3, 2), (2, 3)):
        compiled(torch.ones(1))
        assert module.turned.shape == shape

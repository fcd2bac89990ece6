"""Sizes that contradict the names and ranges of dimensions are refused in the user's words."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from daceml.errors import CallError, ExportError
from daceml.module.module import compile_module
from tests.support.exported_models import Lambda
from tests.support.golden import raises


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize(
    ("rows", "dim", "bound", "fix"),
    [
        (600, Dim("batch", max=64), "max=64", 'Dim("batch", max=600)'),
        (3, Dim("batch", min=4), "min=4", 'Dim("batch", min=3)'),
    ],
    ids=["too many", "too few"],
)
def test_sizes_outside_the_range(rows: int, dim: object, bound: str, fix: str):
    compiled = compile_module(nn.Linear(4, 2), backward=False, dynamic_shapes={"input": {0: dim}})
    with raises(CallError, "dimension 0", "input", rows, "'batch'", bound) as error:
        compiled(torch.randn(rows, 4))
    assert fix in error.value.fix


def test_one_name_is_one_size():
    add = Lambda(lambda *args: args[0] + args[1])
    compiled = compile_module(add, backward=False, dynamic_shapes={"args": ({0: "n"}, {0: "n"})})
    with raises(CallError, "dimension 0 of args_1 is 3", "dimension 0 of args_0 is 2", "'n'"):
        compiled(torch.randn(2, 4), torch.randn(3, 4))


@pytest.mark.parametrize(
    ("function", "fact"),
    [(lambda x: x + torch.ones(3, 1), "3"), (lambda x: x * 2 if x.shape[0] < 10 else x, "max=9")],
    ids=["one size", "some sizes"],
)
def test_what_forward_makes_of_a_dimension(function: object, fact: str):
    compiled = compile_module(Lambda(function), backward=False, dynamic_shapes={"args": ({0: "n"},)})
    with raises(ExportError, "dimension 0 of args_0", "'n'", fact) as error:
        compiled(torch.randn(3, 4))
    assert "dynamic_shapes" in error.value.fix

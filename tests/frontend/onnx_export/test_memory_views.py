"""`as_strided` counts elements of memory, whatever the shape and layout of its operand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from daceml.errors import ExportError
from daceml.module.module import compile_module
from tests.support.eager_twin import cases_unlike_eager
from tests.support.golden import raises


class Calls(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row-major": lambda x: (x * 2).as_strided((3,), (2,), 1),
    "transposed": lambda x: (x * 2).t().as_strided((4,), (1,)),
    "transposed twice": lambda x: (x * 2).t().as_strided((2, 3), (1, 2), 0) + 1,
    "overlapping windows": lambda x: (x + 1).reshape(-1).as_strided((4, 3), (1, 1)),
    "overlapping windows of a permuted one": lambda x: (x + 1).t().as_strided((4, 3), (1, 1)),
    "a slice": lambda x: (x * 2)[1:].as_strided((2,), (1,), 4),
    "a view with another shape": lambda x: (x * 2).t().view(3, 2, 1).as_strided((6,), (1,)),
    "nothing": lambda x: (x * 2).as_strided((0, 3), (1, 1)),
    "one element": lambda x: (x * 2).t().as_strided((), (), 4),
    "channels last": lambda x: (
        x.reshape(1, 3, 2, 1).contiguous(memory_format=torch.channels_last).sin().as_strided((6,), (1,))
    ),
}


@pytest.mark.parametrize("gradients", [False, True])
def test_values_and_gradients(gradients: bool):
    x = torch.arange(6.0).reshape(2, 3)
    cases = {name: (function, [x]) for name, function in PROGRAMS.items()}
    assert cases_unlike_eager(cases, gradients=gradients) == []


def changed(
    prepare: Callable[[torch.Tensor], torch.Tensor],
    geometry: tuple[tuple[int, ...], ...],
    change: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x):
        y = prepare(x)
        z = y.as_strided(*geometry)
        change(z)
        return y * 2 + z.sum()

    return function


CHANGES = {
    "columns": changed(lambda x: x * 2, ((2, 2), (2, 1)), lambda z: z.mul_(3)),
    "apart": changed(lambda x: x * 2, ((2, 2), (3, 2)), lambda z: z.exp_()),
    "transposed": changed(lambda x: x.t() * 2, ((4,), (1,)), lambda z: z.exp_()),
    "by itself": changed(lambda x: x.sin(), ((2,), (4,)), lambda z: z.add_(z)),
    "nothing": changed(lambda x: x.sin(), ((0,), (1,)), lambda z: z.zero_()),
    "one element": changed(lambda x: x.sin(), ((), ()), lambda z: z.fill_(3)),
}


@pytest.mark.parametrize("gradients", [False, True])
def test_a_change_reaches_the_tensor(gradients: bool):
    x = torch.arange(6.0).reshape(2, 3) / 6
    cases = {name: (function, [x]) for name, function in CHANGES.items()}
    assert cases_unlike_eager(cases, gradients=gradients) == []


def test_an_element_that_two_places_of_a_view_write():
    compiled = compile_module(
        Calls(lambda x: torch.as_strided_scatter(x * 2, x[:, :2], (2, 2), (1, 1))), backward=False
    )
    with raises(ExportError, "a change of a part of memory", "more than once", exact=False):
        compiled(torch.arange(6.0).reshape(2, 3))


def test_an_input_in_another_order():
    module = Calls(lambda x: x.as_strided((4,), (1,)))
    compiled = compile_module(module, backward=False)
    for x in (torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).t()):
        torch.testing.assert_close(compiled(x), module(x))


def test_an_offset_counts_from_the_start_of_the_callers_storage():
    module = Calls(lambda x: x.as_strided((2, 2), (2, 1), 0) * 2 + x.sum())
    compiled = compile_module(module, backward=False, fullgraph=False)
    base = torch.arange(16.0).reshape(4, 4)
    for x in (torch.ones(3, 4), base[1:]):
        torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1].as_strided((3,), (1,), 0),
        lambda x: (x * 2)[1:].as_strided((3,), (1,), 2),
        lambda x: (x * 2)[:, ::2].as_strided((5,), (1,)),
    ],
)
def test_memory_that_no_value_has(function: Callable[[torch.Tensor], torch.Tensor]):
    module, x = Calls(function), torch.arange(12.0).reshape(4, 3)[1:3]
    with raises(ExportError, "as_strided", "test_memory_views.py"):
        compile_module(module, backward=False)(x)
    torch.testing.assert_close(compile_module(module, backward=False, fullgraph=False)(x), module(x))

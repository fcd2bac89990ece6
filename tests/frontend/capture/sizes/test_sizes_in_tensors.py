"""Sizes that pass through small tensors stay sizes: one program, right for every size that eager takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import daceml
from daceml.module.module import DaceModule


class Sizes(nn.Module):
    """Gives `use` its argument."""

    def __init__(self, use: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(x)


def compiled(use: Callable[[torch.Tensor], torch.Tensor], *, dynamic: bool) -> DaceModule:
    """Compiled for three shapes, each of them right, in one program each at most."""
    module = daceml.compile(Sizes(use), dynamic=dynamic, fullgraph=True)
    assert isinstance(module, DaceModule)
    for shape in ((4, 12), (3, 8), (5, 20))[: 3 if dynamic else 1]:
        x = torch.randn(shape)
        torch.testing.assert_close(module(x), use(x))
    return module


def chunked(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.size(0), torch.div(x.size(1), 4, rounding_mode="trunc"), 4) * 2  # pyright: ignore


def rounded_to_zero(x: torch.Tensor) -> torch.Tensor:
    return x[:, : torch.div(-x.size(1), 5, rounding_mode="trunc")] * 2  # pyright: ignore


def halves(x: torch.Tensor) -> torch.Tensor:
    lengths = torch.tensor([x.size(1) // 2, x.size(1) - x.size(1) // 2])
    first, second = x.split(lengths.tolist(), 1)
    return first.sum() * second


def table(x: torch.Tensor) -> torch.Tensor:
    starts = torch.as_tensor([x.shape, (2, 3)]).prod(1).cumsum(0)
    return x.flatten()[: starts[0]] * starts[-1]


def branch(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.tensor(x.size(1)) > 5 else x * 3


def least(x: torch.Tensor) -> torch.Tensor:
    return x[:, : torch.minimum(torch.tensor(x.size(0)), torch.tensor(x.size(1))).item()] * 2  # pyright: ignore


def value(x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt(torch.tensor(x.size(1)))


@pytest.mark.parametrize("use", [chunked, rounded_to_zero, halves, table, branch, least, value])
def test_integers_of_sizes_are_one_program_for_every_size(use: Callable[[torch.Tensor], torch.Tensor]):
    module = compiled(use, dynamic=True)
    assert len(module.session.variants) == 1


@pytest.mark.parametrize("use", [chunked, table])
def test_sizes_that_are_fixed_are_constants(use: Callable[[torch.Tensor], torch.Tensor]):
    compiled(use, dynamic=False)


def test_float32_rounds_as_torch_does_which_fixes_the_size():
    # 25 * 0.28 is 7.0 in float32 and 7.000000000000001 in Python
    def share(x: torch.Tensor) -> torch.Tensor:
        return x[:, : int(torch.ceil(torch.tensor(x.size(1)) * 0.28))] * 2

    module = daceml.compile(Sizes(share), dynamic=True, fullgraph=True)
    for columns in (25, 12):
        x = torch.randn(3, columns)
        torch.testing.assert_close(module(x), share(x))


def test_a_tensor_that_forward_changes_is_not_known_any_more():
    def changed(x: torch.Tensor) -> torch.Tensor:
        length = torch.tensor(x.size(1))
        length.sub_(3)
        return x[:, : length.item()] * 2  # pyright: ignore

    module = daceml.compile(Sizes(changed), dynamic=True, fullgraph=False)
    for shape in ((4, 12), (3, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(module(x), changed(x))


def test_random_numbers_are_no_constants():
    def shortened(x: torch.Tensor) -> torch.Tensor:
        return x[: int(torch.rand(()) * 10)] * 2

    module = daceml.compile(Sizes(shortened), fullgraph=False)
    x = torch.randn(10)
    for seed in (0, 1):  # which draw 4 and 7
        torch.manual_seed(seed)
        ours = module(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(ours, shortened(x))

"""Short rows that become one with the dimensions outside them: the same numbers, in whole vectors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.transformations import standard_recipe
from daceml.transformations.hardware.merged_rows import merge_short_rows
from tests.support.tensor_functions import Apply, Function, optimised


def bent(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x) * torch.sigmoid(x + b)


def merged(function: Function, *shapes: tuple[int, ...]) -> int:
    (found,) = (p for p in optimised(function, *shapes).passes if p.name == "merge_short_rows")
    return found.applied.get("merged loops", 0)


@pytest.mark.parametrize(
    ("shapes", "count"),
    [
        (((2, 3, 5, 7), (3, 1, 1)), 1),  # an image
        (((2, 3, 4, 5, 7), (3, 1, 1, 1)), 1),  # a volume
        (((2, 3, 1, 7), (1,)), 1),
        (((2, 3, 5, 7), (7,)), 0),  # each row again reads the same elements
        (((2, 3, 5, 32), (3, 1, 1)), 0),  # rows of whole vectors
        (((105,), (1,)), 0),
        (((2, 0, 5, 7), (1, 1, 1)), 0),
    ],
)
def test_what_lies_side_by_side_is_one_row(shapes: tuple[tuple[int, ...], ...], count: int) -> None:
    assert merged(bent, *shapes) == count
    x, b = (torch.randn(shape) for shape in shapes)
    compiled = daceml.compile(Apply(bent), backward=False)
    torch.testing.assert_close(compiled(x, b).double(), bent(x.double(), b.double()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.bool])
def test_every_type_and_bit_stays(dtype: torch.dtype) -> None:
    def chosen(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.where(x > b, x, b)

    x, b = torch.randn(2, 3, 9, 11).mul(3).to(dtype), torch.randn(3, 1, 1).to(dtype)
    if dtype == torch.bool:
        compiled = daceml.compile(Apply(torch.logical_or), backward=False)
        assert torch.equal(compiled(x, b), torch.logical_or(x, b))
        return
    assert torch.equal(daceml.compile(Apply(chosen), backward=False)(x, b), chosen(x, b))


def test_views_keep_their_strides() -> None:
    compiled = daceml.compile(Apply(bent), backward=False)
    wide, b = torch.randn(2, 3, 9, 40), torch.randn(3, 1, 1)
    for x in (wide[..., 3:14], wide[..., ::3], wide.transpose(2, 3), wide[:, :, 1:8, :5], wide.flip(3)):
        expected = bent(x.double(), b.double())
        torch.testing.assert_close(compiled(x, b).double(), expected, rtol=1e-5, atol=1e-6)


def test_transposed_results_keep_their_dimensions() -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.transpose(1, 2)) + 1

    assert merged(turned, (3, 5, 7)) == 0
    x = torch.randn(3, 5, 7)
    torch.testing.assert_close(daceml.compile(Apply(turned), backward=False)(x), turned(x))


def test_a_training_step_is_the_same_without_the_pass() -> None:
    x, b = torch.randn(2, 3, 5, 7), torch.randn(3, 1, 1)
    found: list[list[torch.Tensor]] = []
    for recipe in (standard_recipe(), standard_recipe().without(merge_short_rows.__name__)):
        given = [t.clone().requires_grad_() for t in (x, b)]
        y = daceml.compile(Apply(bent), recipe=recipe)(*given)
        y.square().sum().backward()
        found.append([y.detach(), *(t.grad for t in given if t.grad is not None)])
    assert len(found[0]) == 3
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class Grown(nn.Module):
    """Channels of images, and what a depthwise convolution makes of them, as in GhostNet and DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.second = nn.Conv2d(12, 12, 3, padding=1, groups=12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).relu()
        return torch.cat([y, self.second(y)], 1)


@pytest.mark.parametrize("training", [False, True])
def test_a_part_of_a_result_is_written_in_blocks(training: bool):
    module, x = Grown().train(training), torch.randn(4, 3, 40, 40)
    compiled = daceml.compile(module)
    with torch.set_grad_enabled(training):
        result = compiled(x)
        torch.testing.assert_close(result, module(x), rtol=1e-4, atol=1e-5)
        if training:
            result.square().sum().backward()
            found = module.first.weight.grad
            module.zero_grad()
            module(x).square().sum().backward()
            torch.testing.assert_close(found, module.first.weight.grad, rtol=1e-3, atol=1e-3)

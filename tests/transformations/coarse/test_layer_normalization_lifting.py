"""Layer normalization as users spell it becomes one operator, with eager's numbers and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from daceml.transformations.coarse.layer_normalization_lifting import NAME
from tests.support.golden import golden
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons

Function = Callable[..., torch.Tensor]


def shared(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-6) * w + b


def computed_twice(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    variance = x.var(-1, keepdim=True, unbiased=False)
    return w * (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + 1e-12) + b


def scaled_first(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return b + w * (x - mean) / (torch.pow(x - mean, 2).mean(-1, keepdim=True) + 1e-5).sqrt()


def two_dimensions(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean((1, 2), keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean((-1, -2), keepdim=True) + 1e-3)


class Every(nn.Module):
    """All forms, with parameters of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.randn(5) for _ in range(3))
        self.biases = nn.ParameterList(torch.randn(5) for _ in range(3))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        forms = (shared, computed_twice, scaled_first)
        both = zip(forms, tensors, self.scales, self.biases, strict=False)
        return (*(form(x, w, b) for form, x, w, b in both), two_dimensions(tensors[-1]))


def test_every_form_is_found_and_has_eagers_numbers_and_gradients():
    torch.manual_seed(0)
    module = Every().double()
    tensors = [torch.randn(3, 2 + i, 5, dtype=torch.float64) * 3 + 1 for i in range(4)]
    assert operators(lifted(module, *tensors)) == {"LayerNormalization": 4}
    equals_eager(module, *tensors, rtol=1e-11)


def test_two_of_one_tensor_share_what_they_have_in_common():
    def both(x: torch.Tensor) -> torch.Tensor:
        w = torch.linspace(-1, 2, 5, dtype=x.dtype)
        return shared(x, w, w + 1) * shared(x, w - 1, w)

    x = torch.randn(3, 5, dtype=torch.float64)
    network = lifted(Of(both), x)
    assert operators(network)["LayerNormalization"] == 1
    (reason,) = set(reasons(network, NAME))
    assert reason == golden()
    assert "LayerNormalization" in reason
    equals_eager(Of(both), x, rtol=1e-11)


def test_edges_are_eagers():
    rows = [[0.0] * 5, [1.0] * 5, [math.inf, 1, 2, 3, 4], [math.nan, 1, 2, 3, 4], [1e20, -1e20, 0, 3, 1]]
    rows += [[-math.inf, math.inf, 0, 1, 2], [1e-20, 2e-20, 0, 0, 1e-21], [1.0, 2, 3, 4, 5]]
    w, b = torch.linspace(-1, 2, 5), torch.linspace(3, 4, 5)
    for form in (shared, computed_twice):
        equals_eager(Of(lambda x, form=form: form(x, w, b)), torch.tensor(rows), rtol=2e-6)


def spelled(axes: int | tuple[int, ...], more: Function = lambda y, *_: y) -> Function:
    def form(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(axes, keepdim=True)
        return more(centred / torch.sqrt((centred * centred).mean(axes, keepdim=True) + 1e-6), *others)

    return form


@pytest.mark.parametrize(
    ("function", "dtype", "others", "fact"),
    [
        (spelled(1), torch.float32, (), "dimensions [1] of 3"),
        (spelled(-1), torch.float16, (), "float16"),
        (spelled(-1, lambda y, w: y * w), torch.float32, (2, 4, 1), "tensors_1: float32[2, 4, 1]"),
    ],
)
def test_what_the_operator_does_not_do_stays(
    function: Function, dtype: torch.dtype, others: tuple[int, ...], fact: str
):
    inputs = [torch.randn(2, 4, 6, dtype=dtype), *([torch.randn(others)] if others else [])]
    network = lifted(Of(function), *inputs)
    (reason,) = reasons(network, NAME)
    assert reason == golden()
    assert fact in reason


def test_a_sample_deviation_is_none():
    def sample(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)

    assert "LayerNormalization" not in operators(lifted(Of(sample), torch.randn(3, 5)))
    equals_eager(Of(sample), torch.randn(3, 5, dtype=torch.float64))

"""Sizes used as numbers: the type that torch computes in, exact whole numbers, float64 fractions."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from daceml.module.module import compile_module
from tests.support.exported_models import Lambda

SHAPES = ((4, 4), (6, 3), (1, 4))


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def agree(function, *shapes: tuple[int, ...], variants: int | None = None) -> None:
    """Results of one compiled function and of eager PyTorch, for every shape; types and values."""
    compiled = compile_module(Lambda(function), backward=False, dynamic=True)
    for shape in shapes:
        x = torch.randn(shape)
        for ours, theirs in zip(compiled(x), function(x), strict=True):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    if variants is not None:
        assert len(compiled.session.variants) == variants


def test_operands_take_the_type_of_the_tensor_beside_them():
    def function(x):
        n, m = x.shape
        sums = (x + n, n - x, x * n, x / m, m / (x.abs() + 1), x.sum() / x.numel(), torch.add(x, x, alpha=n))
        return *sums, x // n, x % m, x.abs() ** n, 2**m + x, x * (n // 2), x * max(n, m), x * min(n, m)

    agree(function, (4, 5), (6, 5), (7, 9), variants=1)


def test_sizes_of_one_and_other_branches():
    def function(x):
        n, m = x.shape
        return x * n, x / m, x.mean(0) * len(x), x.clamp(-n, m), x * (n / m), x * n**0.5

    agree(function, *SHAPES)


def test_fractions_round_to_whole_numbers():
    def function(x):
        n, m = x.shape
        return x * round(n / 4), x + round(n * m / 8), x[: math.floor(n * 0.75)], x[: math.ceil(n / 3)]

    agree(function, (5, 4), (6, 3), (12, 7), (10, 2), variants=1)


def test_whole_numbers_round_down_and_stay_whole():
    def function(x):
        n, m = x.shape
        whole = (x * 10).long()
        return x * -(-n // 2), whole * n, whole // n, whole / n, (x * 10).int() + m, whole * (n % 3)

    agree(function, (5, 2), (4, 3), (7, 3), variants=1)


def test_fractions_are_those_of_python():
    def function(x):
        n, m = x.shape
        return x * (n / m), x.double() * (n / 3), x.double() / (n * m) ** 0.5, x * n**-0.5

    agree(function, (5, 2), (4, 3), (7, 9))


def test_half_tensors_are_divided_by_more_than_half_precision():
    def function(x):
        return x.half() * x.shape[0], x.half() / x.shape[0], x.bfloat16() / x.shape[0]

    compiled = compile_module(Lambda(function), backward=False, dynamic=True)
    for rows in (4, 3001):
        x = torch.randn(rows, 2)
        for ours, theirs in zip(compiled(x), function(x), strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


def test_tensors_are_filled_and_compared_with_sizes():
    def function(x):
        n, m = x.shape
        filled = (torch.full((n, 2), m), torch.full_like(x, n), x.new_full((2,), n / 2), torch.tensor(n) * 2)
        counted = (torch.arange(n) / n, torch.arange(n, dtype=torch.float32) * 2)
        chosen = (torch.where(x > 0, x, n), x.masked_fill(x > 0, m), torch.arange(m) < n, x > n)
        return *filled, *counted, *chosen, x.clamp(max=1 / n), torch.zeros_like(x).fill_(n)

    agree(function, (4, 5), (6, 3), (7, 3))


def test_attention_is_scaled_by_the_root_of_a_size():
    def function(x):
        scores = x @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        spelled = scores.masked_fill(~causal, -math.inf).softmax(-1) @ x
        return spelled, functional.scaled_dot_product_attention(x, x, x, scale=x.shape[-1] ** -0.5)

    agree(function, (2, 4, 6), (3, 5, 6), (2, 3, 4))


def test_variances_over_symbolic_sizes():
    agree(lambda x: (x.var(0), x.std((0, 1)), x.double().var(1, unbiased=False)), (4, 5), (6, 3), variants=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_numbers_that_vmap_casts(dtype):
    module = Lambda(lambda x: torch.vmap(lambda row: (row * 2 + row.shape[0]) / 3)(x))
    compiled = compile_module(module, dynamic=True)
    for shape in SHAPES:
        x = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
        torch.testing.assert_close(compiled(x), module(x))

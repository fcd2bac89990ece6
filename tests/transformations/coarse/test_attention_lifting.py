"""Attention as users spell it becomes one operator, with eager's numbers and gradients, NaN included."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import daceml
from daceml.transformations import Recipe, Step, standard_recipe
from daceml.transformations.coarse.attention_lifting import NAME, lift_attention
from daceml.transformations.standard import operator_recipe
from tests.support.golden import golden
from tests.support.sampling import sampled
from tests.transformations.coarse.lifted import Of, lifted, operators, reasons, step

Spelled = Callable[..., torch.Tensor]
# for any number of keys: what small tensors test is what large ones do
ANY_SIZE = (
    Recipe(
        Step(lift_attention, {"fewest_keys": 1}, only=("inference",)),
        Step(lift_attention, {"training": True, "fewest_keys": 1}, only=("training",)),
    )
    + standard_recipe()
)


def found(
    function: Spelled, *inputs: torch.Tensor, training: bool = True
) -> tuple[dict[str, int], list[str]]:
    """Operators after the standard passes, with this one for any size, and its refusals."""
    for_any = Step(lift_attention, {"training": training, "fewest_keys": 1})
    recipe = operator_recipe(training=True).without("lift_attention").before("split_dropout", for_any)
    network = lifted(Of(function), *inputs, recipe=recipe)
    return operators(network), reasons(network, NAME)


def equals_eager(
    function: Callable[..., Any], *inputs: torch.Tensor, rtol: float, native: bool = False
) -> None:
    """Results and gradients, of all inputs of a floating type.

    Args:
        rtol: against the largest finite element.
        native: without the vendor's kernel.
    """
    module = Of(function)
    compiled = daceml.compile(copy.deepcopy(module), recipe=ANY_SIZE, prefer_native=native)
    for ours, theirs in zip(step(compiled, *inputs), step(module, *inputs), strict=True):
        finite = theirs[theirs.isfinite()]
        largest = finite.abs().max().item() if finite.numel() else 0.0
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol * largest, equal_nan=True)


def all_of(*functions: Spelled) -> Callable[..., tuple[torch.Tensor, ...]]:
    """One program of several."""
    return lambda *tensors: tuple(function(*tensors) for function in functions)


def divided(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v


def multiplied(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (0.3 * (q @ k.mT)).softmax(-1) @ v


def scaled_before(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q * 0.3 @ k.mT).softmax(-1) @ v


def with_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return divided(q, k, v).transpose(1, 2).flatten(2)


def turned_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1), v.permute(0, 2, 1, 3)
    return functional.softmax(q @ k / 2.0, dim=3) @ v


def keys_in_columns(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k).softmax(-1) @ v


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    shown = torch.tril(torch.ones(q.shape[-2], k.shape[-2]))
    return (q @ k.mT * 0.5).masked_fill(shown == 0, -math.inf).softmax(-1) @ v


def causal_sum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.triu(torch.full((q.shape[-2], k.shape[-2]), -math.inf, dtype=q.dtype), 1)
    return (q @ k.mT * 0.5 + mask).softmax(-1) @ v


def shown(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT / 2
    return torch.where(mask, scores, -math.inf).softmax(-1) @ v


def padded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    mask = (1 - kept.to(q.dtype)) * torch.finfo(q.dtype).min
    return (q @ k.mT / 2 + mask).softmax(-1) @ v


def biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT / 2 + mask).softmax(-1) @ v


def operands(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


BATCHED = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
MATRICES = ((3, 5, 4), (3, 7, 4), (3, 7, 4))
ONE = ((1, 1, 1, 1),) * 3
APART = ((2, 5, 3, 4), (2, 7, 3, 4), (2, 7, 3, 4))
BATCHED_FUNCTIONS = (divided, multiplied, scaled_before, causal, causal_sum)


@pytest.mark.parametrize(
    ("function", "shapes", "further"),
    [
        (divided, BATCHED, {}),
        (divided, MATRICES, {"Unsqueeze": 3, "Squeeze": 1}),
        (divided, ONE, {"Transpose": 1}),  # what transposes one element has gone by now
        (multiplied, BATCHED, {}),
        (scaled_before, BATCHED, {"Mul": 1}),
        (with_heads, APART, {"Transpose": 4, "Reshape": 1}),
        (turned_keys, APART, {"Transpose": 3}),
        (keys_in_columns, ((2, 3, 5, 4), (2, 3, 4, 7), (2, 3, 7, 4)), {"Transpose": 1}),
        (causal, BATCHED, {"ConstantOfShape": 1, "Trilu": 1, "Equal": 1, "Where": 1}),
        (causal_sum, BATCHED, {"ConstantOfShape": 1, "Trilu": 1}),
    ],
)
def test_every_form_is_found(function: Spelled, shapes: tuple[tuple[int, ...], ...], further: dict[str, int]):
    assert found(function, *operands(*shapes)) == ({"AttentionSaving": 1, **further}, [])


@pytest.mark.parametrize(
    ("functions", "shapes"),
    [
        (BATCHED_FUNCTIONS, BATCHED),
        ((divided, causal), MATRICES),
        ((divided, causal), ONE),
        ((with_heads, turned_keys), APART),
    ],
)
def test_numbers_and_gradients_are_eagers(
    functions: tuple[Spelled, ...], shapes: tuple[tuple[int, ...], ...]
):
    equals_eager(all_of(*functions), *operands(*shapes), rtol=1e-12)


def test_numbers_and_gradients_of_float32_and_numbers_in_inference_are_eagers():
    functions, given = (divided, causal), operands(*BATCHED, dtype=torch.float32)
    equals_eager(all_of(*functions), *given, rtol=2e-6)
    compiled = daceml.compile(Of(all_of(*BATCHED_FUNCTIONS)), recipe=ANY_SIZE, backward=False)
    with torch.no_grad():
        for function, ours in zip(BATCHED_FUNCTIONS, compiled(*given), strict=True):
            torch.testing.assert_close(ours, function(*given), rtol=2e-6, atol=2e-6)


def test_masks_are_repeated():
    q, k, v = operands(*BATCHED)
    masks = [torch.rand(shape) > 0.5 for shape in [(5, 7), (7,), (2, 1, 1, 7), (2, 3, 5, 7), (3, 1, 7)]]

    def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *masks: torch.Tensor) -> Any:
        return tuple(function(q, k, v, mask) for mask in masks for function in (shown, padded))

    kinds, refused = found(masked, q, k, v, *masks)
    assert (kinds["AttentionSaving"], refused) == (2 * len(masks), [])
    equals_eager(masked, q, k, v, *masks, rtol=1e-12)


@pytest.mark.parametrize("native", sampled([False, True], False))
def test_rows_of_which_nothing_is_seen_are_eagers(native: bool):
    q, k, v = operands(*BATCHED, dtype=torch.float32)
    mask = torch.tensor([[True] * 7, [False] * 7, [True] + [False] * 6, [False] * 6 + [True], [True] * 7])

    def added(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return biased(q, k, v, torch.where(m, 0.0, -math.inf))

    assert found(added, q, k, v, mask) == ({"AttentionSaving": 1, "Where": 1}, [])
    equals_eager(all_of(shown, padded, added), q, k, v, mask, rtol=2e-6, native=native)


@pytest.mark.parametrize(("native", "numbers"), [(False, (1, 3, 7, 40)), (True, (3,))])
def test_numbers_that_are_not_finite_go_where_the_steps_let_them(native: bool, numbers: tuple[int, ...]):
    torch.manual_seed(0)
    q, given = torch.randn(1, 6, 5, 4), list[torch.Tensor]()
    for keys in numbers:
        k, v = torch.rand(1, 6, keys, 4) + 0.1, torch.randn(1, 6, keys, 4)
        k[0, 3, -1, 0] = math.nan
        k[0, 4, 0, 1] = -math.inf
        v[0, 5, 0, 0] = math.inf
        given += [k, v, torch.rand(5, keys) > 0.4]
    q[0, 0, 1] = -math.inf
    q[0, 1, 2, 3] = math.nan
    q[0, 2, 0, 0] = math.inf

    def every(q: torch.Tensor, *given: torch.Tensor) -> Any:
        threes = zip(given[::3], given[1::3], given[2::3], strict=True)
        return tuple(y for k, v, m in threes for y in (divided(q, k, v), shown(q, k, v, m)))

    equals_eager(every, q, *given, rtol=5e-6, native=native)


def test_scores_of_zero_stay_what_they_are():
    q, k = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 1, 4)
    for v in (torch.randn(1, 2, 1, 4), torch.zeros(1, 2, 1, 4)):
        equals_eager(divided, q, k, v, rtol=1e-6)


def test_non_contiguous_operands_and_large_ones():
    q, k, v = (t.transpose(1, 2) for t in operands((2, 33, 3, 8), (2, 530, 3, 8), (2, 530, 3, 8)))
    assert found(divided, q, k, v) == ({"AttentionSaving": 1}, [])
    equals_eager(divided, q, k, v, rtol=1e-11)


def test_the_gradient_of_a_mask_is_that_of_the_steps():
    q, k, v, mask = operands(*BATCHED, (1, 3, 1, 7))
    assert found(biased, q, k, v, mask)[1] == [golden()]
    assert found(biased, q, k, v, mask, training=False)[0] == {"AttentionSaving": 1}
    equals_eager(biased, q, k, v, mask, rtol=1e-12)


def test_refusals():
    q, k, v = operands(*BATCHED)
    mask = torch.rand(5, 7) > 0.5

    def wrong_axis(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.mT).softmax(-2) @ v

    def read_twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weights = (q @ k.mT).softmax(-1)
        return weights @ v, weights

    def product_read(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scores = q @ k.mT
        return scores.softmax(-1) @ v, scores

    def dropped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.dropout((q @ k.mT).softmax(-1), 0.5, True) @ v

    def learned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.mT * q.mean()).softmax(-1) @ v

    def negative(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.mT * -0.5).softmax(-1) @ v

    def filled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (q @ k.mT).masked_fill(mask, -1e9).softmax(-1) @ v

    def scores_given(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(q @ k.mT).softmax(-1) @ v

    def refused(function: Callable[..., object], *inputs: torch.Tensor, names: str) -> bool:
        kinds, (reason,) = found(function, *inputs)  # pyright: ignore[reportArgumentType]
        assert "AttentionSaving" not in kinds
        assert reason == golden()
        return names in reason

    assert refused(wrong_axis, q, k, v, names="dimension -2 of 4")
    assert refused(read_twice, q, k, v, names="Softmax")
    assert refused(product_read, q, k, v, names="reads its scores")
    assert refused(learned, q, k, v, names="scale")
    assert refused(negative, q, k, v, names="scale -0.5")
    assert refused(filled, q, k, v, mask, names="mask makes -1e+09")
    assert refused(scores_given, q, k, v, names="scores")
    assert refused(divided, q, k, v[..., :3], names="width")
    assert refused(divided, q, k[:, :1], v, names="heads")
    assert refused(divided, q[0, 0], k[0, 0], v[0, 0], names="2, 2 and 2 dimensions")
    assert refused(divided, q[:, :, :0], k, v, names="empty")
    assert refused(divided, q.half(), k.half(), v.half(), names="float16")
    (reason,) = reasons(lifted(Of(dropped), q, k, v), NAME)
    assert reason == golden()
    assert "dropout" in reason


def test_the_standard_recipe_lifts_where_many_keys_are():
    for keys, training in ((191, None), (192, False), (383, False), (384, True)):
        q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, keys, 8)
        network = lifted(Of(divided), q, k, k)
        lifts = operators(network).get("AttentionSaving", 0) == 1
        assert lifts == (training is True)
        if not lifts:
            (reason,) = reasons(network, NAME)
            assert reason == golden()
            assert f"{keys} keys" in reason and "384" in reason
        compiled = daceml.compile(Of(divided), backward=False)
        with torch.no_grad():
            torch.testing.assert_close(compiled(q, k, k), divided(q, k, k))
        assert ("lift_attention" in str(daceml.explain(compiled, q, k, k).applied)) == (keys >= 192)

"""Writes at positions that depend on data: what was overwritten gets no gradient."""

from __future__ import annotations

import pytest
import torch

from daceml.autodiff.vjp import rules_of
from tests.support.golden import golden
from tests.support.implementation_pairs import Case, agree


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def once(extent: int, count: int, *lanes: int) -> torch.Tensor:
    """Different positions along dimension 0 for each lane."""
    generator = torch.Generator().manual_seed(2)
    return torch.rand(extent, *lanes, generator=generator).argsort(0)[:count].contiguous()


def elements(
    data: torch.Tensor, indices: torch.Tensor, reduction: str = "none", axis: int = 0, **more: object
) -> Case:
    def write(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        place = indices % data.shape[axis]
        return (
            data.scatter_add(axis, place, updates)
            if reduction == "add"
            else data.scatter(axis, place, updates)
        )

    return Case(
        op="ScatterElements",
        inputs={
            "data": data,
            "indices": indices,
            "updates": numbers(*indices.shape, dtype=data.dtype, seed=1),
        },
        outputs={"output": data},
        result="output",
        attributes={"axis": axis, "reduction": reduction},
        reference=write,
        wanted=("data", "updates"),
        **more,
    )


def nd(data: torch.Tensor, indices: torch.Tensor, reduction: str = "none") -> Case:
    shape = (*indices.shape[:-1], *data.shape[indices.shape[-1] :])

    def write(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return data.index_put(tuple(indices.unbind(-1)), updates, accumulate=reduction == "add")

    return Case(
        op="ScatterND",
        inputs={"data": data, "indices": indices, "updates": numbers(*shape, dtype=data.dtype, seed=1)},
        outputs={"output": data},
        result="output",
        attributes={"reduction": reduction},
        reference=write,
        wanted=("data", "updates"),
    )


CASES = {
    "overwritten": elements(numbers(7, 5), once(7, 3, 5)),
    "fewer lanes": elements(numbers(7, 5), once(7, 3, 2) - 7),
    "the last axis, float64": elements(
        numbers(3, 7, dtype=torch.float64), once(7, 4, 3).t().contiguous(), axis=1
    ),
    "added, repeated": elements(numbers(4, 5), once(9, 9, 5) % 8 - 4, "add"),
    "no updates": elements(numbers(4, 5), torch.empty(0, 5, dtype=torch.int64)),
    "symbolic": elements(numbers(11, 5), once(11, 3, 5), symbolic={11: "N"}),
    "rows": nd(numbers(7, 5), once(7, 3)[:, None]),
    "rows added, bfloat16": nd(numbers(4, 5, dtype=torch.bfloat16), torch.tensor([[1], [0], [3]]), "add"),
    "elements": nd(numbers(3, 4), torch.tensor([[0, 1], [2, 3], [2, 0]])),
}


def cache(indices: torch.Tensor | None, mode: str = "linear") -> Case:
    """Two new positions in each sample's cache of five."""

    def write(
        past_cache: torch.Tensor, update: torch.Tensor, write_indices: torch.Tensor | None = None
    ) -> torch.Tensor:
        first = torch.zeros(3, dtype=torch.int64) if write_indices is None else write_indices
        place = (first[:, None] + torch.arange(2)) % 5
        return past_cache.index_put((torch.arange(3)[:, None], place), update)

    past = numbers(3, 5, 4)
    inputs = {"past_cache": past, "update": numbers(3, 2, 4, seed=1)}
    return Case(
        op="TensorScatter",
        inputs=inputs if indices is None else inputs | {"write_indices": indices},
        outputs={"present_cache": past},
        result="present_cache",
        attributes={"mode": mode, "axis": 1},
        reference=write,
        wanted=("past_cache", "update"),
    )


def unpooled() -> Case:
    pooled, places = torch.nn.functional.max_pool2d(numbers(2, 3, 6, 8), 2, return_indices=True)
    # ONNX counts in the whole tensor, torch in each image
    planes = torch.arange(6).reshape(2, 3, 1, 1) * 48

    def put_back(X: torch.Tensor, I: torch.Tensor) -> torch.Tensor:  # noqa: E741
        return torch.nn.functional.max_unpool2d(X, I - planes, 2)

    return Case(
        op="MaxUnpool",
        inputs={"X": pooled, "I": places + planes},
        outputs={"output": numbers(2, 3, 6, 8)},
        result="output",
        attributes={"kernel_shape": [2, 2], "strides": [2, 2]},
        reference=put_back,
        wanted=("X",),
    )


WRITTEN = {
    "cache": cache(torch.tensor([0, 3, 1])),
    "cache from its beginning": cache(None),
    "circular cache": cache(torch.tensor([4, 0, 2]), "circular"),
    "maxima put back": unpooled(),
}


def test_gradients_are_those_of_torch():
    agree(CASES)


def test_gradients_of_caches_and_maxima_are_those_of_torch():
    agree(WRITTEN, forward=("native",), backward=("native",))


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_a_reduction_that_is_no_sum_has_no_rule(op: str):
    (rule,) = rules_of(op)
    assert rule.when is not None
    reason = rule.when(reduction="max")
    assert reason == golden()
    assert "reduction max" in reason

"""Reads at positions that depend on data: gradients are added up where they were read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import daceml
from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.eager_twin import Function, cases_unlike_eager
from tests.support.implementation_pairs import NATIVE, Case, agree


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def positions(extent: int, *shape: int, lowest: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(lowest, extent, shape, generator=generator).to(dtype)


def gather(data: torch.Tensor, indices: torch.Tensor, axis: int = 0, **more: Any) -> Case:
    along = axis % data.dim()

    def read(data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        found = indices.long() % data.shape[along]
        return (
            data.index_select(along, found.reshape(-1))
            .unflatten(along, indices.shape or (1,))
            .reshape((*data.shape[:along], *indices.shape, *data.shape[along + 1 :]))
        )

    return Case(
        op="Gather",
        inputs={"data": data, "indices": indices},
        outputs={"output": read(data, indices)},
        result="output",
        attributes={"axis": axis},
        reference=read,
        wanted=("data",),
        **more,
    )


def embedding(
    rows: int, width: int, *shape: int, padding: int = -1, by_frequency: bool = False, **more: Any
) -> Case:
    weight, indices = numbers(rows, width), positions(rows, *shape)
    return Case(
        op="Embedding",
        domain="daceml",
        inputs={"weight": weight, "indices": indices},
        outputs={"result": weight[indices]},
        result="result",
        attributes={"padding": padding, "by_frequency": int(by_frequency)},
        reference=lambda weight, indices: functional.embedding(
            indices, weight, None if padding < 0 else padding, scale_grad_by_freq=by_frequency
        ),
        wanted=("weight",),
        **more,
    )


def elements(data: torch.Tensor, indices: torch.Tensor, axis: int, **more: Any) -> Case:
    def read(data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return data.gather(axis, indices.long() % data.shape[axis])

    return Case(
        op="GatherElements",
        inputs={"data": data, "indices": indices},
        outputs={"output": read(data, indices)},
        result="output",
        attributes={"axis": axis},
        reference=read,
        wanted=("data",),
        **more,
    )


def nd(data: torch.Tensor, indices: torch.Tensor, batch: int = 0) -> Case:
    def read(data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        if batch == 0:
            return data[tuple(indices.unbind(-1))]
        return torch.stack([d[tuple(i.unbind(-1))] for d, i in zip(data, indices, strict=True)])

    return Case(
        op="GatherND",
        inputs={"data": data, "indices": indices},
        outputs={"output": read(data, indices)},
        result="output",
        attributes={"batch_dims": batch},
        reference=read,
        wanted=("data",),
    )


def topk(data: torch.Tensor, count: int, axis: int, largest: bool = True) -> Case:
    values, indices = data.topk(count, axis, largest)
    return Case(
        op="TopK",
        inputs={"X": data, "K": torch.tensor([count])},
        outputs={"Values": values, "Indices": indices},
        result="Values",
        constants=("K",),
        attributes={"axis": axis, "largest": int(largest)},
        reference=lambda X, K: X.topk(count, axis, largest)[0],
        wanted=("X",),
    )


CASES = {
    "rows of a table": gather(numbers(9, 5), positions(9, 4, 3, lowest=-9)),
    "rows of 32 bits, float64": gather(
        numbers(5, 16, dtype=torch.float64), positions(5, 12, dtype=torch.int32)
    ),
    "rows that are matrices": gather(numbers(4, 3, 5), positions(4, 7)),
    "one position": gather(numbers(4, 3), torch.tensor(2)),
    "the last axis": gather(numbers(3, 5), positions(5, 2, 4), axis=-1),
    "the middle axis": gather(numbers(3, 5, 33), positions(5, 7), axis=1),
    "a vector": gather(numbers(5), positions(5, 11)),
    "no reads": gather(numbers(5, 3), positions(5, 0)),
    "bfloat16": gather(numbers(5, 3, dtype=torch.bfloat16), positions(5, 4)),
    "symbolic": gather(numbers(5, 3), positions(5, 11), symbolic={11: "N"}),
    "embedding": embedding(9, 65, 3, 4),
    "embedding with padding": embedding(5, 4, 3, 7, padding=2),
    "embedding by frequency": embedding(4, 3, 5, 3, by_frequency=True),
    "embedding by frequency with padding": embedding(4, 3, 5, padding=1, by_frequency=True),
    "elements": elements(numbers(5, 7), positions(5, 4, 7, lowest=-5), 0),
    "elements of fewer lanes": elements(numbers(5, 7, 3), positions(7, 4, 9, 2), 1),
    "elements, float16": elements(numbers(3, 33, dtype=torch.float16), positions(33, 3, 5), 1),
    "nd": nd(numbers(4, 3, 5), torch.stack([positions(4, 6), positions(3, 6)], -1)),
    "nd, elements": nd(numbers(4, 3), torch.stack([positions(4, 2, 5), positions(3, 2, 5)], -1)),
    "nd, batches": nd(numbers(2, 4, 3), positions(4, 2, 5, 1), batch=1),
    "topk": topk(numbers(5, 7), 3, -1),
    "topk, smallest of the first": topk(numbers(7, 3, 5), 2, 0, largest=False),
}


@pytest.mark.parametrize("kinds", [KINDS, NATIVE])
def test_gradients_are_those_of_torch(kinds: tuple[Kind, ...]):
    _, chosen = agree(CASES, backward=kinds)
    assert ("aten:embedding_backward" in chosen) == (kinds == KINDS)


def test_short_rows_are_added_up_by_a_loop_and_large_tables_by_torch():
    _, few = agree({"long rows": embedding(300, 65, 3, 4)}, backward=KINDS)
    _, many = agree({"short rows": embedding(9, 4, 50, 7)}, backward=KINDS)
    assert "aten:embedding_backward" in few
    assert "aten:embedding_backward" not in many


def parts(x: torch.Tensor) -> torch.Tensor:
    first, second, third = x.exp().unbind(1)
    return first * 2 + second * third


def test_parts_at_constant_positions_have_the_values_and_gradients_of_torch():
    x = numbers(3, 3, 4)
    cases = {
        "all parts": (parts, [x]),
        "one part": (lambda x: x.sin()[:, 0], [x]),
        "the last one": (lambda x: x.sin()[..., -1] + x.mean(-1), [x]),
        "a part twice": (lambda x: x[1] * x[1] + x[-2].exp(), [x]),
        "a part of a part": (lambda x: x[1][:, 2] * x[2, 0, 1], [x]),
        "a list of one": (lambda x: x[:, [1]] * x, [x]),
        "products": (lambda x: (x[0] @ x[1].T).softmax(-1) @ x[2], [x]),
    }
    assert cases_unlike_eager(cases, gradients=True) == []


def test_parts_at_constant_positions_are_one_loop_in_both_passes():
    x = numbers(5, 3, 4).requires_grad_()
    module = daceml.compile(Function(parts))
    module(x).sum().backward()
    variant = module.session.latest
    assert variant.backward is not None
    for program in (variant.program, variant.backward.program):
        assert len(program.manifest.steps) == 1

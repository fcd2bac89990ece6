"""Bags and segments: empty ones, one that holds everything, equal maxima."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.implementation_pairs import NATIVE, Case, agree


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def bags(starts: list[int], count: int, dtype: torch.dtype = torch.float32, **more: object) -> Case:
    weight, offsets = numbers(6, 5, dtype=dtype), torch.tensor(starts)
    return Case(
        op="EmbeddingBagSum",
        domain="daceml",
        inputs={
            "weight": weight,
            "indices": torch.randint(0, 6, (count,), generator=torch.Generator().manual_seed(1)),
            "offsets": offsets,
        },
        outputs={"result": torch.empty(len(starts), 5, dtype=dtype)},
        result="result",
        reference=lambda weight, indices, offsets: functional.embedding_bag(
            indices, weight, offsets, mode="sum"
        ),
        wanted=("weight",),
        **more,
    )


def segments(
    op: str, starts: list[int], rows: torch.Tensor, lowest: float = -torch.inf, **more: object
) -> Case:
    def reference(rows: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            part = rows[start:end]
            if op == "SegmentSum":
                found.append(part.sum(0))
            elif start == end:
                found.append(torch.full_like(rows[0], lowest))
            else:
                found.append(part.max(0)[0])  # the first of equal ones
        return torch.stack(found)

    return Case(
        op=op,
        domain="daceml",
        inputs={"rows": rows, "offsets": torch.tensor(starts)},
        outputs={"result": torch.empty(len(starts), rows.shape[1], dtype=rows.dtype)},
        result="result",
        reference=reference,
        wanted=("rows",),
        **more,
    )


TIES = torch.tensor([[1.0, 2.0], [3.0, 2.0], [3.0, 0.0], [0.0, 0.0], [0.0, -1.0]])

CASES = {
    "bags": bags([0, 2, 2, 5], 9),
    "the first and the last are empty": bags([0, 0, 3, 4], 4),
    "one bag, float64": bags([0], 7, torch.float64),
    "nine bags": bags([0, 1, 2, 3, 3, 3, 6, 7, 8], 9),
    "symbolic": bags([0, 2, 3], 11, symbolic={11: "T", 3: "B"}),
    "sums": segments("SegmentSum", [0, 2, 2, 6], numbers(7, 3)),
    "sums, bfloat16": segments("SegmentSum", [0, 1], numbers(4, 3, dtype=torch.bfloat16)),
    "maxima": segments("SegmentMax", [0, 2, 3], numbers(7, 5)),
    "equal maxima, an empty segment": segments("SegmentMax", [0, 3, 3], TIES),
}


@pytest.mark.parametrize("kinds", [KINDS, NATIVE])
def test_gradients_are_those_of_torch(kinds: tuple[Kind, ...]):
    _, chosen = agree(CASES, backward=kinds)
    assert ("aten:embedding_bag_backward" in chosen) == (kinds == KINDS)

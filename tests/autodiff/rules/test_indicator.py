"""One-hot tensors: the two numbers that they are made of get the sums of what came to them."""

from __future__ import annotations

import torch

from tests.support.implementation_pairs import NATIVE, Case, agree


def one_hot(indices: torch.Tensor, depth: int, axis: int = -1) -> Case:
    def chosen(indices: torch.Tensor, depth: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        extent = int(depth)
        place = torch.where(indices < 0, indices + extent, indices).long().unsqueeze(axis)
        along = axis % place.dim()
        at = torch.arange(extent).reshape([extent if d == along else 1 for d in range(place.dim())])
        return torch.where(place == at, values[1], values[0])

    values = torch.tensor([0.5, -2.0])
    return Case(
        op="OneHot",
        inputs={"indices": indices, "depth": torch.tensor(depth), "values": values},
        outputs={"output": chosen(indices, torch.tensor(depth), values)},
        result="output",
        constants=("depth",),
        attributes={"axis": axis},
        reference=chosen,
        wanted=("values",),
    )


CASES = {
    "last axis": one_hot(torch.tensor([[0, 2], [1, 1], [3, 0]]), 4),
    "an axis in between": one_hot(torch.tensor([[0, 2], [1, 1]]), 3, axis=1),
    "from the end, and outside": one_hot(torch.tensor([-1, 7, 2, -9]), 5, axis=0),
    "nothing": one_hot(torch.zeros(0, dtype=torch.int64), 3),
}


def test_gradients_are_sums_over_what_is_hot_and_what_is_not():
    agree(CASES, forward=NATIVE, backward=NATIVE)

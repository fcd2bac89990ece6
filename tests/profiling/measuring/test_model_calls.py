from __future__ import annotations

import pytest
import torch
from torch import nn

from daceml.errors import MeasurementError
from daceml.profiling.measuring.model_calls import model_calls


def test_equal_calls_are_counted_and_different_ones_told_apart():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    found = model_calls(model, (torch.randn(4, 8),))
    counts = {(one.call.operator, one.call.tensors[0].shape): one.forward for one in found}
    assert counts[("aten::addmm", (8,))] == 2 and counts[("aten::addmm", (2,))] == 1
    assert counts[("aten::relu", (4, 8))] == 2
    assert all(one.backward == 0 for one in found)


def test_a_backward_pass_has_operators_of_its_own():
    found = model_calls(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), (torch.randn(2, 8),), backward=True)
    counts = {one.call.operator: (one.forward, one.backward) for one in found}
    assert counts["aten::relu"] == (1, 0)
    assert counts["aten::threshold_backward"] == (0, 1)
    assert counts["aten::mm"] == (0, 1), "the weight's gradient; the input has none"


def test_rows_of_a_table_are_no_part_of_what_is_measured():
    class Lookups(nn.Module):
        def forward(self, table: torch.Tensor) -> torch.Tensor:
            few, many = torch.tensor([0, 1]), torch.tensor([5, 9])
            return nn.functional.embedding(few, table) + nn.functional.embedding(many, table)

    found = {one.call.operator: one for one in model_calls(Lookups(), (torch.randn(10, 3),))}
    lookup = found["aten::embedding"]
    assert lookup.forward == 2
    assert (lookup.call.tensors[1].low, lookup.call.tensors[1].high) == (0, 1)


def test_results_in_dictionaries_and_lists_are_differentiated():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> dict[str, object]:
            return {"a": [self.layer(x)], "n": 3}

    assert any(one.backward for one in model_calls(Named(), (torch.randn(2, 3),), backward=True))


def test_a_model_without_gradients_has_no_backward_pass():
    with pytest.raises(MeasurementError) as refusal:
        model_calls(nn.ReLU(), (torch.randn(3),), backward=True)
    assert refusal.value.fix == "leave --train out, or return a tensor that depends on a parameter"

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from daceml.errors import MeasurementError
from daceml.operations.database.records import Duration, Entry, Environment
from daceml.operations.database.store import OpDatabase
from daceml.operations.measuring.model_calls import model_calls
from tests.support.golden import raises


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
    with raises(MeasurementError, "backward", "--train"):
        model_calls(nn.ReLU(), (torch.randn(3),), backward=True)


class Everything(nn.Module):
    """Operators with attributes of every kind: masks of outputs, strides, reductions, probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1),
            nn.BatchNorm2d(4),
            nn.GELU(approximate="tanh"),
            nn.MaxPool2d(2),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Flatten(),
            nn.Linear(256, 8),
            nn.LayerNorm(8),
            nn.Dropout(0.25),
        )
        self.table = nn.Embedding(10, 8)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        logits = self.front(x) + self.table(places).sum(1)
        return nn.functional.cross_entropy(logits.softmax(-1), places[:, 0] % 8, label_smoothing=0.1)


def test_every_operation_of_a_training_step_can_be_kept_and_found(tmp_path: Path):
    torch.manual_seed(0)
    calls = model_calls(
        Everything(), (torch.randn(2, 3, 16, 16), torch.randint(0, 10, (2, 5))), backward=True
    )
    operations = [one.call.operation() for one in calls]
    assert {"aten::convolution_backward", "aten::native_batch_norm_backward"} <= {
        o.operator for o in operations
    }
    with OpDatabase(tmp_path / "m.db") as database:
        for operation in operations:
            entry = Entry(
                operation=operation,
                environment=Environment(device="Planted 1"),
                duration=Duration(median_s=1e-6),
                provenance="measured",
                source="a test",
                licence="CC0-1.0",
                date="2026-11-23",
            )
            database.add(entry)
            assert database.find(operation, device="Planted 1") == (entry,)


def test_inputs_that_the_model_does_not_take_are_named():
    # torch says why
    with raises(MeasurementError, "inputs", "RuntimeError: mat1 and mat2 shapes", exact=False):
        model_calls(nn.Linear(3, 2), (torch.randn(4, 5),))

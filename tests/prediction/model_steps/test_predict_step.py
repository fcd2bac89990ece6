"""`daceml.predict_step`: models and files on listed devices, exactly where everything was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.devices.catalogue import find_device
from daceml.errors import DeviceError, StepPredictionError
from daceml.operations.database.records import Duration, Entry, Environment
from daceml.operations.database.store import OpDatabase
from daceml.operations.duration_chain import DurationLadder
from daceml.prediction.model_steps.host_cost import HostCost
from daceml.prediction.model_steps.predict_step import captured
from daceml.prediction.model_steps.step_durations import step_durations
from daceml.simulation.whatif.optimization import Estimate
from tests.support.golden import golden, raises
from tests.support.onnx_files import save_sum

FREE = HostCost(call_us=Estimate.known(0.0), view_us=Estimate.known(0.0))
NET = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
X = torch.empty(256, 32)


def known(folder: Path, device: str, us: float) -> Path:
    """A database in which every operation of the net takes as long."""
    step = captured(NET, X, optimizer="sgd")
    operations = {repr(o.operation): o.operation for o in step.operations if o.launches}
    with OpDatabase(folder / "rows.db") as database:
        database.add_all(
            Entry(
                operation=operation,
                environment=Environment(device=device),
                duration=Duration(median_s=us * 1e-6, mad_s=0.0),
                provenance="measured",
                source="a test",
                licence="CC0-1.0",
                date="2026-05-20",
            )
            for operation in operations.values()
        )
    return folder / "rows.db"


def test_a_step_of_measured_operations_is_their_sum(tmp_path: Path):
    rows = known(tmp_path, "H100", 100.0)
    seen = daceml.predict_step(NET, X, device="H100", optimizer="sgd", database=rows, host=FREE)
    count = sum(one.launches for one in captured(NET, X, optimizer="sgd").operations)
    assert seen.by_basis == {"measured": pytest.approx(1.0)}
    assert seen.step_us == pytest.approx(100 * count)
    assert seen.low_us > 0.94 * seen.step_us, "what was measured is known to 5 %"
    assert seen.high_us < 1.06 * seen.step_us
    assert seen.notes[0] == golden() and "a test" in seen.notes[0]


def test_an_open_database_is_left_open(tmp_path: Path):
    with OpDatabase(known(tmp_path, "A100", 10.0)) as database:
        daceml.predict_step(NET, X, device="A100", optimizer="sgd", database=database)
        assert len(database) > 0


def test_rows_of_another_device_are_scaled(tmp_path: Path):
    rows = known(tmp_path, "A100", 100.0)
    seen = daceml.predict_step(NET, X, device="H100", optimizer="sgd", database=rows, host=FREE)
    assert seen.by_basis["scaled"] == pytest.approx(1.0)


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_every_listed_gpu_has_an_answer_or_a_reason(devices: int):
    step = captured(NET, X)
    for name in ("H100", "H200", "A100", "V100", "T4", "L4", "L40S", "RTX 4090", "B200", "MI300X"):
        seen = daceml.predict_step(step, device=name, devices=devices)
        assert 0 < seen.low_us <= seen.step_us <= seen.high_us


def test_tf32_makes_products_faster_where_a_device_has_it():
    large = captured(nn.Linear(4096, 4096), torch.empty(8192, 4096))
    ladder = DurationLadder()
    full, tf32 = (
        step_durations(large, find_device("A100"), ladder, precision=precision).likely_us.sum()
        for precision in ("fp32", "tf32")
    )
    assert tf32 < 0.3 * full
    old = step_durations(large, find_device("V100"), ladder, precision="tf32")
    (note,) = [note for note in old.notes if "tf32" in note]
    assert note == golden() and "V100-SXM2-16GB" in note and "float32" in note


def test_what_a_device_is_not_known_to_compute_is_refused():
    with raises(DeviceError, "peak_flops_per_s.bfloat16", "V100-SXM2-16GB"):
        daceml.predict_step(NET, X, device="V100", precision="bf16")


def test_no_inputs_and_a_loss_of_a_file_are_refused(tmp_path: Path):
    with raises(StepPredictionError, "inputs"):
        daceml.predict_step(NET)
    with raises(StepPredictionError, "ONNX", "loss"):
        daceml.predict_step(save_sum(tmp_path), {"N": 4}, loss=len)


def test_inputs_are_a_tensor_a_tuple_or_names():
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x @ y

    x, y = torch.empty(4, 8), torch.empty(8, 2)
    by_place, by_name = captured(Two(), (x, y), train=False), captured(Two(), {"x": x, "y": y}, train=False)
    assert by_place.operations == by_name.operations
    assert captured(by_place) is by_place


def test_unknown_sizes_leave_the_floor_of_a_launch():
    step = captured(NET, X, train=False)
    odd = replace(
        step.operations[0].operation,
        operator="mine::odd",
        operands=(replace(step.operations[0].operation.operands[0], dtype="quaternion"),),
    )
    one = replace(step.operations[0], operation=odd, results=(), work=None)
    found = step_durations(replace(step, operations=(one,)), find_device("H100"), DurationLadder())
    assert found.estimates[0].duration_us == pytest.approx(3.0, abs=0.01)
    outside = found.estimates[0].outside
    assert outside == golden() and "mine::odd" in outside

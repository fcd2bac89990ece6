"""`daceml.OperationTracker`: a step is recorded, and predicted for devices that are not here."""

from __future__ import annotations

import pytest
import torch

import daceml
from daceml.devices.catalogue import find_device
from daceml.errors import DeviceError, RecordingError, TrackingError
from daceml.prediction.recorded_runs.tracked_step import TrackedTrace
from tests.support.golden import raises
from tests.support.recorded_operators import GEMM, Run, square


@pytest.fixture(scope="module")
def tracker() -> daceml.OperationTracker:
    """Of a training step."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 64)
    tracker = daceml.OperationTracker()
    with tracker.track():
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    return tracker


def test_a_step_on_a_processor_is_predicted_for_a_gpu(tracker: daceml.OperationTracker):
    trace = tracker.get_tracked_trace()
    prediction = trace.to_device("H100", batch=32)
    assert trace.run_time_ms > 0 and not trace.has_device
    assert 0 < prediction.run_time_low_ms < prediction.run_time_ms < prediction.run_time_high_ms
    # of two layers three products: the first one's input needs no gradient
    gemms = next(one for one in prediction.classes if one.kind == "GEMM")
    assert gemms.count == 5
    assert prediction.throughput() == pytest.approx(32 / (prediction.run_time_ms / 1e3))
    assert tracker.trace is trace


def test_a_slower_device_takes_longer(tracker: daceml.OperationTracker):
    fast, slow = (tracker.trace.to_device(find_device(name)).run_time_ms for name in ("H100", "T4"))
    assert fast <= slow


def test_a_device_that_nobody_knows(tracker: daceml.OperationTracker):
    with raises(DeviceError, "'H1000'"):
        tracker.trace.to_device("H1000")


def test_nothing_was_tracked():
    with raises(TrackingError, "with tracker.track(): step()"):
        daceml.OperationTracker().trace  # noqa: B018


def test_a_block_that_raises_leaves_nothing_and_the_tracker_usable():
    tracker = daceml.OperationTracker()
    with pytest.raises(ZeroDivisionError), tracker.track():
        raise ZeroDivisionError
    with raises(TrackingError, "with tracker.track(): step()"):
        tracker.get_tracked_trace()
    with tracker.track():
        torch.randn(8, 8) @ torch.randn(8, 8)
    assert tracker.trace.to_device("H100").run_time_ms > 0


def test_a_block_within_a_block():
    tracker = daceml.OperationTracker()
    with raises(TrackingError, "track()"), tracker.track(), tracker.track():
        pass
    other = daceml.OperationTracker()
    with tracker.track(), raises(RecordingError, "torch's profiler"), other.track():
        pass


def test_a_run_on_a_gpu_is_replayed_on_another():
    run = Run()
    for _ in range(5):
        run.operator("aten::mm", (GEMM, 400.0), dims=square(4096))
    trace = TrackedTrace(trace=run.wait().trace())
    prediction = trace.to_device("L4", batch=8)
    assert trace.has_device and prediction.origin == find_device("H100")
    assert prediction.schedule is not None and prediction.run_time_ms > trace.run_time_ms
    assert trace.to_device("H100").run_time_ms == trace.run_time_ms


def test_a_compiled_module_s_kernels_are_known_by_what_the_compiler_counted():
    class Mish(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.tanh(torch.nn.functional.softplus(x))

    x = torch.randn(512, 1024)
    module = daceml.compile(Mish(), backward=False)
    module(x)
    tracker = daceml.OperationTracker()
    with tracker.track():
        module(x)
    (kind,) = (one for one in tracker.trace.to_device("H100").classes if one.kind == "compiled")
    # one fused loop, which reads and writes 2 MB each
    least_us = 2 * x.nbytes / find_device("H100").need("memory_bytes_per_s", why="a test") * 1e6
    assert kind.count == 1 and least_us < kind.duration_us < 10 * least_us

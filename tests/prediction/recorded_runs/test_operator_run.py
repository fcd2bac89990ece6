"""Runs on a processor: which operators do the work, and what they would take on a device."""

from __future__ import annotations

import json
from typing import Any

import pytest

from daceml.devices.catalogue import find_device
from daceml.devices.roofline import Work, expected, lower_bound
from daceml.devices.specification import Device, Sourced
from daceml.errors import PredictionError
from daceml.operations.database.records import Operation
from daceml.operations.estimate import Estimate
from daceml.prediction.recorded_runs.operator_run import NO_ORIGIN, ONE_BY_ONE, on_device, operator_calls
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from tests.support.golden import golden, raises

H100 = find_device("H100")


def known(value: float) -> Sourced:
    return Sourced(value=value, source="a test", verified=True)


CPU = Device(
    name="a processor", kind="cpu", vendor="unknown", architecture="2 threads", floor_us=known(1.0),
    memory_bytes_per_s=known(2e10), peak_flops_per_s={"float32": known(1e11)},
)  # fmt: skip
SIZE = 256
PRODUCT = Work(flops=2 * SIZE**3, bytes_moved=3 * 4 * SIZE**2)
MATRIX = [SIZE, SIZE]


def recorded(*calls: tuple[str, float, float, list[Any]]) -> Trace:
    """Operators on one thread: (name, start, duration, dimensions of tensors of float32, if recorded)."""
    events = [
        {
            "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasts,
            "args": {"Input Dims": dims, "Input type": ["float"] * len(dims)} if dims else {},
        }
        for name, start, lasts, dims in calls
    ]  # fmt: skip
    return trace_of(json.dumps({"traceEvents": events}).encode(), "a run")


def names(trace: Trace) -> list[str]:
    return [call.name for call in operator_calls(trace)]


def test_of_operators_within_each_other_the_innermost_that_account_for_the_work():
    trace = recorded(
        ("aten::linear", 0, 100, [MATRIX, MATRIX]),
        ("aten::t", 1, 2, [MATRIX]),
        ("aten::mm", 5, 90, [MATRIX, MATRIX]),
        ("aten::sum", 200, 50, [MATRIX]),
        ("aten::fill_", 201, 2, [[1]]),  # the sum's own memory: it does not account for the sum
        ("aten::to", 300, 1, [MATRIX]),  # of the type that it had
    )
    assert names(trace) == ["aten::mm", "aten::sum"]


def test_frames_around_operators_do_nothing_and_what_nobody_knows_is_told():
    trace = recorded(
        ("autograd::engine::evaluate_function: MmBackward0", 0, 100, []),
        ("MmBackward0", 1, 98, []),
        ("aten::mm", 5, 90, [MATRIX, MATRIX]),
        ("mine::attention", 200, 100, [MATRIX]),
    )
    prediction = on_device(trace, H100)
    assert names(trace) == ["aten::mm", "mine::attention"] and len(prediction.tasks) == 1
    (left_out,) = [told for told in prediction.assumptions if "mine::attention" in told]
    assert left_out == golden() and "52.6%" in left_out


def test_from_a_processor_that_is_described_the_recorded_time_counts():
    trace = recorded(("aten::mm", 0, 1000, [MATRIX, MATRIX]))
    prediction = on_device(trace, H100, origin=CPU, batch=4)
    ratio = expected(PRODUCT, H100).duration_us / expected(PRODUCT, CPU).duration_us
    assert prediction.step_us == pytest.approx(1000 * ratio) and prediction.recorded_us == 1000
    assert (prediction.origin, prediction.flags) == (CPU, ())
    assert prediction.assumptions == (ONE_BY_ONE,)
    assert prediction.throughput() == pytest.approx(4 / (prediction.step_us / 1e6))
    assert prediction.fast_us == pytest.approx(prediction.step_us / 3)


def test_else_the_rates_of_the_destination_alone_with_wide_limits_and_a_flag():
    prediction = on_device(recorded(("aten::mm", 0, 1000, [MATRIX, MATRIX])), H100)
    likely, least = expected(PRODUCT, H100), lower_bound(PRODUCT, H100)
    assert prediction.step_us == pytest.approx(likely.duration_us)
    assert prediction.fast_us == pytest.approx(least.duration_us)
    assert prediction.slow_us == pytest.approx(5 * likely.duration_us)
    assert NO_ORIGIN in prediction.assumptions
    assert prediction.flags == (golden(),)
    assert "100%" in prediction.flags[0]


def test_on_the_same_processor_it_takes_what_it_took():
    prediction = on_device(recorded(("aten::mm", 0, 1000, [MATRIX, MATRIX])), CPU, origin=CPU)
    assert (prediction.fast_us, prediction.step_us, prediction.slow_us) == (1000, 1000, 1000)


class Knows:
    """Every operation takes 7 us."""

    def estimate(self, operation: Operation, device: Device) -> Estimate:
        return Estimate(duration_us=7, low_us=6, high_us=8, basis="measured")


def test_whoever_knows_durations_there_is_asked_first():
    prediction = on_device(recorded(("aten::mm", 0, 1000, [MATRIX, MATRIX])), H100, source=Knows())
    assert (prediction.fast_us, prediction.step_us, prediction.slow_us) == (6, 7, 8)
    assert prediction.tasks[0].method == "measured"


def test_what_the_destination_cannot_compute_is_flagged():
    prediction = on_device(recorded(("aten::mm", 0, 1000, [MATRIX, MATRIX])), CPU)
    assert prediction.tasks[0].method == "roofline"
    half = recorded(("aten::add", 0, 1000, [MATRIX, MATRIX]))
    bare = Device(name="bare", kind="gpu", vendor="nobody", architecture="none")
    outside = on_device(half, bare).tasks[0].outside
    assert outside == golden() and "peak_flops_per_s.float32" in outside and "bare" in outside


@pytest.mark.parametrize(
    "trace",
    [recorded(("aten::mm", 0, 10, [])), recorded(("aten::t", 0, 10, [MATRIX]))],
    ids=["no shapes", "no operators that work"],
)
def test_without_operators_that_are_known_there_is_no_prediction(trace: Trace):
    with raises(PredictionError, "record_shapes=True", "daceml.OperationTracker") as refusal:
        on_device(trace, H100)
    assert refusal.value.where == "a run"


def test_limits_hold_the_likely_time():
    for device in (H100, CPU, find_device("MI300X"), find_device("L4")):
        for one in on_device(recorded(("aten::mm", 0, 9, [MATRIX, MATRIX])), device).tasks:
            assert one.low_us <= one.duration_us <= one.high_us

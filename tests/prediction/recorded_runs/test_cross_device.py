"""A recorded step on another device: stories with times."""

from __future__ import annotations

import pytest

from daceml.devices.catalogue import find_device
from daceml.errors import OriginDeviceError, PredictionError, WhatIfError
from daceml.prediction.prices import Price
from daceml.prediction.recorded_runs.cross_device import HOST_STAYS, RecordedRun
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.optimization import Estimate
from tests.support.golden import golden, raises
from tests.support.recorded_operators import ADD, GEMM, Run, square

H100, A100, L4 = (find_device(name) for name in ("H100", "A100-SXM4-80GB", "L4"))


def device_bound() -> Run:
    """Ten products of 400 us each, launched within 100 us, and a thread that waits for them."""
    run = Run()
    for _ in range(10):
        run.operator("aten::mm", (GEMM, 400.0), dims=square(4096))
    return run.wait()


def test_a_step_that_waits_for_its_device_is_as_slow_as_the_device():
    prediction = RecordedRun.of(device_bound().trace()).on(L4, batch=8)
    grown_us = prediction.busy_us - 4000.0
    assert grown_us > 4000.0
    assert prediction.step_us == pytest.approx(prediction.recorded_us + grown_us, rel=1e-3)
    assert prediction.run_time_low_ms < prediction.run_time_ms < prediction.run_time_high_ms
    assert prediction.run_time_ms == prediction.step_us / 1e3
    assert HOST_STAYS in prediction.assumptions


def test_a_step_that_its_thread_keeps_busy_is_no_faster_elsewhere():
    run = Run()
    for _ in range(20):
        run.operator("aten::add", (ADD, 2.0), dims=square(64))
    recorded = RecordedRun.of(run.wait().trace())
    same, other = recorded.on(H100), recorded.on(A100)
    assert same.step_us == same.recorded_us == same.slow_us
    # its interval begins with what the device needs, as threads took what they took under the profiler
    assert same.host is not None
    assert same.fast_us == same.host.device_us < 0.5 * same.step_us
    assert other.host is not None and str(other.host) == golden()
    assert other.step_us == pytest.approx(same.step_us, rel=0.02)
    # unless the caller knows the other host
    assert recorded.on(A100, host_factor=2.0).step_us > 1.8 * same.step_us


def test_samples_a_second_and_what_they_cost():
    prediction = RecordedRun.of(device_bound().trace()).on(H100, batch=8)
    assert prediction.throughput() == pytest.approx(8 / (prediction.step_us / 1e6))
    price = Price(usd_per_hour=3.6, date="2026-05-20")
    assert prediction.cost(price, samples=prediction.throughput() * 1000) == pytest.approx(1.0)
    assert price.samples_per_usd(prediction.throughput()) == pytest.approx(prediction.throughput() * 1000)


def test_a_larger_batch_on_the_other_device():
    recorded = RecordedRun.of(device_bound().trace())
    doubled = LargerBatch(ratio=2.0, growth=Estimate.known(1.0), floor_us=Estimate.known(0.0))
    once, twice = recorded.on(A100, batch=8), recorded.on(A100, optimizations=[doubled], batch=8)
    assert twice.batch == 16 and twice.step_us == pytest.approx(2 * once.step_us, rel=0.05)
    assert once.assumptions == (HOST_STAYS,)
    assert twice.assumptions == (HOST_STAYS, golden(), golden())


def test_an_optimisation_that_cannot_be_applied_says_why():
    with raises(WhatIfError, LargerBatch.title):
        RecordedRun.of(device_bound().trace()).on(A100, optimizations=[LargerBatch(ratio=0.0)])


def test_without_a_batch_nobody_knows_samples():
    with raises(PredictionError, "--batch-recorded N", "throughput(batch=N)"):
        RecordedRun.of(device_bound().trace()).on(A100).throughput()


@pytest.mark.parametrize("samples", [0, -5, float("inf"), "a"])
def test_what_is_no_number_of_samples(samples: float):
    prediction = RecordedRun.of(device_bound().trace()).on(A100, batch=8)
    with raises(PredictionError, repr(samples)):
        prediction.throughput(samples)
    with raises(PredictionError, repr(samples)):
        prediction.cost(Price(usd_per_hour=1.0, date="2026-05-20"), samples=samples)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_host_cannot_take_no_time(factor: float):
    with raises(PredictionError, factor):
        RecordedRun.of(device_bound().trace()).on(A100, host_factor=factor)


def test_what_the_destination_cannot_compute_is_flagged():
    run = Run().operator("aten::mm", ("gemm_bf16", 40.0), dims=square(512), types=["c10::BFloat16"] * 2)
    run.operator("aten::add", (ADD, 40.0), dims=square(512))
    prediction = RecordedRun.of(run.wait().trace()).on(find_device("V100-SXM2-16GB"))
    (flag,) = prediction.flags
    assert flag == golden()
    assert all(fact in flag for fact in ("%", "peak_flops_per_s.bfloat16", "V100-SXM2-16GB"))


def test_the_header_names_the_device():
    assert RecordedRun.of(device_bound().trace()).origin.name == "H100-SXM5-80GB"


def test_a_device_that_nobody_knows_must_be_named():
    run = Run(device="NVIDIA H1000 Ultra").operator("aten::add", (ADD, 40.0)).wait().trace()
    with raises(OriginDeviceError, "'NVIDIA H1000 Ultra'", "--from DEVICE") as refusal:
        RecordedRun.of(run)
    assert refusal.value.where == "a run"
    assert RecordedRun.of(run, origin="h100").origin == H100 == RecordedRun.of(run, origin=H100).origin


def test_a_trace_without_a_header_must_say_where_it_ran():
    with raises(OriginDeviceError, "--from DEVICE", "daceml devices") as refusal:
        RecordedRun.of(Run(device=None).operator("aten::add", (ADD, 40.0)).wait().trace())
    assert refusal.value.where == "a run"


def test_a_run_without_a_device_has_nothing_to_be_retimed():
    with raises(PredictionError, "daceml.OperationTracker") as refusal:
        RecordedRun.of(Run().operator("aten::add").trace())
    assert refusal.value.where == "a run"


def test_a_trace_whose_launches_are_missing_is_refused_with_their_share():
    run = Run().operator("aten::add", (ADD, 4.0))
    for _ in range(3):
        run.operator("aten::add", (ADD, 4.0), linked=False)
    with raises(PredictionError, "3", "4", "75%", "daceml.profile") as refusal:
        RecordedRun.of(run.wait().trace())
    assert refusal.value.where == "a run"

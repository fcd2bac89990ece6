"""Predictions beside real runs: what counts as undisturbed, what a kernel is said to take, and the bars."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.whatif import __main__ as program
from benchmarks.whatif import real
from benchmarks.whatif.emulated_device import EmulatedDevice
from benchmarks.whatif.static_costs import between_products_us
from benchmarks.whatif.undisturbed import StepTime, median_us, undisturbed
from daceml.profiling.recording.step_plan import Plan
from daceml.simulation.whatif.compiled_region import CompiledRegion
from tests.support.operator_steps import every_phase, steps_of

RATES = SimpleNamespace(bytes_per_s=1e9, exponentials_per_s=1e8)
QUIET = StepTime(wall_us=160.0, processor_us=160.0)


def counted(kind: str, label: str, *, unique_bytes: int = 0, special_functions: int = 0) -> Any:
    return SimpleNamespace(
        kind=kind, label=label, unique_bytes=unique_bytes, flops=0, special_functions=special_functions
    )


def test_a_step_is_disturbed_by_who_takes_its_core_and_by_pages_that_the_system_clears():
    preempted = StepTime(wall_us=100.0, processor_us=60.0)
    paged = StepTime(wall_us=200.0, processor_us=200.0, faults=50)
    assert undisturbed([QUIET] * 3 + [preempted] + [QUIET] * 3 + [paged]) == [0, 1, 2, 4, 5, 6]
    assert median_us([QUIET] * 5 + [preempted] * 9) == 160.0


def test_kernels_take_what_their_bytes_or_their_special_functions_take():
    steps = [
        counted("kernel", "LayerNormalization", unique_bytes=20_000),
        counted("aten", "Gemm mm_out", unique_bytes=9_000_000),
        counted("kernel", "Add_Gelu", unique_bytes=10_000, special_functions=3_000),
        counted("kernel", "Mul", unique_bytes=5_000),
    ]
    assert between_products_us(steps, RATES) == (20.0, 30.0 + 5.0)


def test_operators_that_go_take_the_cost_of_being_recorded_with_them():
    # 180 us a step are recorded, 160 without the profiler: 5 us for each of four operators; one stays.
    graph = steps_of(
        ("aten::layer_norm", 40), ("aten::linear", 100), ("aten::gelu", 20), ("aten::mul", 20), steps=5
    )
    region = CompiledRegion(between_products_us=(30.0, 10.0), phases=every_phase(graph))
    plan = Plan(steps=5, warmup=1, unprofiled=3)
    seen = StepTime(wall_us=180.0, processor_us=180.0)
    times = [seen if 5 <= step < 10 else QUIET for step in range(plan.total)]
    told = real.foretold(graph, region, plan, times)
    assert told["predicted_us"] == pytest.approx(30 + 95 + 10, abs=0.5)
    assert told["inflation"] == pytest.approx(180 / 160)


def test_the_emulated_device_runs_a_stream_in_order_and_lets_it_wait_for_another():
    device = EmulatedDevice()
    device.launch("first", 7, 2000)
    device.launch("second", 7, 100)
    device.wait(9, 7)
    device.launch("waits", 9, 100)
    device.synchronize(9)
    device.close()
    kernels = [event["name"] for event in device.events if event["cat"] == "kernel"]
    assert kernels == ["first", "second", "waits"]


@pytest.mark.parametrize(("error", "met"), [(-0.09, True), (0.11, False)])
def test_errors_of_both_signs_count(error: float, met: bool):
    one = {"recorded_us": 2e3, "predicted_us": 1e3, "measured_us": 1e3, "error": error}
    (bar,) = program.real_bars(real.summary("larger batch", [one] * 3, 3))
    assert bar.met is met and "larger batch" in bar.name
    slowed = {"case": "slowed", "times 0.5": one | {"error": 0.04}, "times 2": one | {"error": -0.06}}
    assert [bar.met for bar in program.slowed_bars(slowed)] == [True, False]

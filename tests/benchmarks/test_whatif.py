"""Predictions beside real runs: what counts as undisturbed, what a kernel is said to take, and the bars."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.whatif import __main__ as program
from benchmarks.whatif import real
from benchmarks.whatif.emulated_device import EmulatedDevice
from benchmarks.whatif.static_costs import between_products_us
from benchmarks.whatif.undisturbed import StepTime, median_us, undisturbed
from daceml.errors import WhatIfError
from daceml.profiling.kineto import trace_of
from daceml.profiling.recording.plan import Plan
from daceml.simulation.building.build import build
from daceml.simulation.graph import TaskGraph
from daceml.simulation.prediction import predict
from daceml.simulation.whatif.compiled_region import CompiledRegion
from tests.support.golden import raises

RATES = SimpleNamespace(bytes_per_s=1e9, exponentials_per_s=1e8)
QUIET = StepTime(wall_us=160.0, processor_us=160.0)


def counted(kind: str, label: str, *, unique_bytes: int = 0, special_functions: int = 0) -> Any:
    return SimpleNamespace(
        kind=kind, label=label, unique_bytes=unique_bytes, flops=0, special_functions=special_functions
    )


def recorded(*operators: tuple[str, float], steps: int = 2) -> TaskGraph:
    """Steps of these operators, each (name, microseconds), one after the other and without a device."""
    events: list[dict[str, Any]] = []
    now_us = 0.0
    for step in range(steps):
        begin_us = now_us
        for name, duration_us in operators:
            events.append({"cat": "cpu_op", "name": name, "ts": now_us, "dur": duration_us, "args": {}})
            now_us += duration_us
        name = f"ProfilerStep#{step}"
        events.append({"cat": "user_annotation", "name": name, "ts": begin_us, "dur": now_us - begin_us})
    document = {"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}
    return build(trace_of(json.dumps(document).encode(), "a test"))


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


def test_kernels_between_products_take_their_cost_and_products_what_they_took():
    graph = recorded(("aten::layer_norm", 40), ("aten::linear", 100), ("aten::gelu", 50), ("aten::mul", 30))
    region = CompiledRegion(between_products_us=(20.0, 35.0), phases=tuple(real_phases(graph)))
    assert predict(graph, [region]).step_us == pytest.approx(20 + 100 + 35)


def test_a_bias_behind_the_last_product_counts_to_the_work_before_it():
    graph = recorded(("aten::layer_norm", 40), ("aten::mul", 10), ("aten::linear", 100))
    region = CompiledRegion(between_products_us=(20.0, 7.0), phases=tuple(real_phases(graph)))
    assert predict(graph, [region]).step_us == pytest.approx(20 + 7 + 100)


def test_a_program_with_other_products_is_refused():
    graph = recorded(("aten::linear", 100), ("aten::gelu", 50), ("aten::mul", 30))
    region = CompiledRegion(between_products_us=(1.0, 1.0, 1.0), phases=tuple(real_phases(graph)))
    with raises(WhatIfError, "1 products", "program 2"):
        predict(graph, [region])


def real_phases(graph: TaskGraph) -> Any:
    """Operators of no module belong to no phase; here all are taken."""
    return {int(phase) for phase in graph.tasks.phase}


def test_operators_that_go_take_the_cost_of_being_recorded_with_them():
    # 180 us a step are recorded, 160 without the profiler: 5 us for each of four operators; one stays.
    graph = recorded(
        ("aten::layer_norm", 40), ("aten::linear", 100), ("aten::gelu", 20), ("aten::mul", 20), steps=5
    )
    region = CompiledRegion(between_products_us=(30.0, 10.0), phases=tuple(real_phases(graph)))
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
    assert bar.met is met and "1.0 ms predicted from 2.0 ms" in bar.note
    slowed = {"case": "slowed", "times 0.5": one | {"error": 0.04}, "times 2": one | {"error": -0.06}}
    assert [bar.met for bar in program.slowed_bars(slowed)] == [True, False]

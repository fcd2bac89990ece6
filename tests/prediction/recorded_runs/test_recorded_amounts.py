"""What tasks of a recorded run compute and move."""

from __future__ import annotations

from typing import Any

import pytest

from daceml.prediction.recorded_runs.recorded_amounts import recorded_amounts
from daceml.report.replay_text import replay_text
from daceml.simulation.analysis.busiest import Busy, busiest
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate
from tests.support.recorded_operators import ADD, GEMM, Run, square


def longest(run: Run) -> Busy:
    trace = run.wait().trace()
    graph = build(trace)
    found = busiest(graph, amounts=recorded_amounts(graph, trace))
    return found["kernel" if "kernel" in found else "operator"][0]


def test_a_matrix_multiplication_has_the_rates_that_its_shapes_say():
    seen = longest(Run().operator("aten::mm", (GEMM, 100.0), dims=square(1024)))
    assert seen.flops_per_s == pytest.approx(2 * 1024**3 / 100e-6)
    assert seen.bytes_per_s == pytest.approx(3 * 4 * 1024**2 / 100e-6)


def test_kernels_of_one_call_share_its_work():
    seen = longest(Run().operator("aten::mm", (GEMM, 75.0), (ADD, 25.0), dims=square(1024)))
    assert seen.name == GEMM and seen.flops_per_s == pytest.approx(2 * 1024**3 / 100e-6)


def test_what_has_no_shapes_has_no_rates():
    seen = longest(Run().operator("aten::mm", (GEMM, 100.0)))
    assert seen.flops_per_s is None and seen.bytes_per_s is None


@pytest.mark.parametrize("dims", [None, square(1024)])
def test_a_replay_without_shapes_says_why_it_has_no_rates(dims: Any):
    trace = Run().operator("aten::mm", (GEMM, 100.0), dims=dims).wait().trace()
    graph = build(trace)
    text = " ".join(replay_text(simulate(graph), amounts=recorded_amounts(graph, trace)).split())
    assert ("record_shapes=True" in text) == (dims is None)


@pytest.mark.parametrize("device", ["NVIDIA H100 80GB HBM3", None, "a card of tomorrow"])
def test_rates_that_no_card_reaches_are_not_shown(device: str | None):
    """Shapes that do not belong to the kernel: 275 PFLOP/s of 8,192 x 8,192 in 4 us."""
    seen = longest(Run(device).operator("aten::mm", (GEMM, 4.0), dims=square(8192)))
    assert seen.flops_per_s is None and seen.bytes_per_s is None


def test_operators_of_a_run_without_a_device_have_rates():
    run = Run(None).operator("aten::mm", dims=square(256))
    run.events[-1]["dur"] = 500.0
    run.at = 600.0
    trace = run.trace()
    graph = build(trace)
    (seen,) = busiest(graph, amounts=recorded_amounts(graph, trace))["operator"]
    assert seen.name == "aten::mm" and seen.flops_per_s == pytest.approx(2 * 256**3 / 500e-6)

"""What takes most of a run, and what hides behind what."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.simulation.analysis.busiest import Amounts, Busy, Overlap, busiest, overlap
from daceml.simulation.engine import simulate
from tests.support.task_stories import graph_of


def test_the_longest_come_first_and_what_has_no_layer_has_no_row():
    graph = graph_of("mm gpu0 10 layer a", "add gpu0 30 layer b", "relu gpu0 60", "launch cpu 500")
    found = busiest(graph, most=2)
    assert [(row.name, row.time_us, row.share) for row in found["kernel"]] == [
        ("relu", 60, 0.6),
        ("add", 30, 0.3),
    ]
    assert found["layer"] == (
        Busy(name="b", tasks=1, time_us=30, share=0.3), Busy(name="a", tasks=1, time_us=10, share=0.1)
    )  # fmt: skip
    assert "operator" not in found


def test_a_run_without_a_device_has_its_operators():
    found = busiest(graph_of("mm cpu 10 kind operator", "add cpu 30 kind operator"))
    assert [row.name for row in found["operator"]] == ["add", "mm"] and "kernel" not in found


def test_rates_need_the_amounts_of_almost_all_of_the_time():
    graph = graph_of(
        "mm gpu0 95 operator linear", "bias gpu0 5 operator linear", "relu gpu0 10 operator relu"
    )
    flops = np.array([190e6, np.nan, np.nan])
    moved = np.array([95e3, 5e3, np.nan])
    linear, relu = busiest(graph, amounts=Amounts(flops=flops, bytes_moved=moved))["operator"]
    assert linear.flops_per_s == pytest.approx(2e12) and linear.bytes_per_s == pytest.approx(1e9)
    assert relu.flops_per_s is None and relu.bytes_per_s is None
    flops[0], flops[1] = np.nan, 1e6  # 5 of 100 us say nothing of the rest
    assert busiest(graph, amounts=Amounts(flops=flops, bytes_moved=moved))["operator"][0].flops_per_s is None


def test_communication_hides_behind_kernels_that_run_meanwhile():
    graph = graph_of("gemm gpu0 10", "send link 8 kind collective", "late link 6 kind collective")
    assert overlap(simulate(graph)) == Overlap(communication_us=14, hidden_us=10)
    assert overlap(simulate(graph_of("gemm gpu0 10"))) is None

"""What takes most of a run, and what hides behind what."""

from __future__ import annotations

from daceml.simulation.analysis.busiest import Busy, Overlap, busiest, overlap
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
        Busy(name="b", calls=1, time_us=30, share=0.3), Busy(name="a", calls=1, time_us=10, share=0.1)
    )  # fmt: skip
    assert "operator" not in found


def test_a_run_without_a_device_has_its_operators():
    found = busiest(graph_of("mm cpu 10 kind operator", "add cpu 30 kind operator"))
    assert [row.name for row in found["kernel"]] == ["add", "mm"]


def test_communication_hides_behind_kernels_that_run_meanwhile():
    graph = graph_of("gemm gpu0 10", "send link 8 kind collective", "late link 6 kind collective")
    assert overlap(simulate(graph)) == Overlap(communication_us=14, hidden_us=10)
    assert overlap(simulate(graph_of("gemm gpu0 10"))) is None

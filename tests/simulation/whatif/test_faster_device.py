"""Each kind of work faster by its own ratio."""

from __future__ import annotations

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.faster_device import FasterDevice
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.support.golden import golden
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "start cpu 2",
    "launch cpu 4 gap 6",
    "gemm gpu0 21 after launch",
    "relu gpu0 9",
    "HtoD gpu0 13 kind copy",
    "sum link 25 after HtoD",
)


def test_products_memory_links_and_processor_have_their_own_ratio():
    option = FasterDevice(
        compute=Estimate.known(4), memory=Estimate.known(2), host_link=Estimate.known(3),
        link=Estimate.known(6), cpu=Estimate.known(2), floor_us=Estimate.known(1),
    )  # fmt: skip
    schedule = simulate(applied(option, GRAPH))
    assert schedule["launch"] == (4, 6) and schedule["gemm"] == (6, 12) and schedule["relu"] == (12, 17)
    assert schedule["HtoD"] == (17, 22) and schedule["sum"] == (22, 27)


def test_ratios_that_change_nothing_are_refused():
    assert FasterDevice().check(GRAPH) == golden()
    reason = FasterDevice(compute=Estimate.known(0)).check(GRAPH)
    assert reason == golden() and "compute" in reason and "0" in reason
    reason = FasterDevice(link=Estimate.known(2)).check(graph_of("gemm gpu0 1"))
    assert reason == golden() and "link" in reason


def test_what_a_run_has_nothing_of_is_refused():
    processor = graph_of("step cpu 5", "update cpu 3")
    for name in ("compute", "memory", "host_link"):
        assert FasterDevice(**{name: Estimate.known(2)}).check(processor) == golden()
    assert FasterDevice(cpu=Estimate.known(2)).check(processor) is None

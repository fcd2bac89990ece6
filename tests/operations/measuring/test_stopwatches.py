"""The same chains by a wall clock, CUDA events and CUDA graphs; stand-ins for the device."""

from __future__ import annotations

import pytest

from daceml.operations.measuring.one_operation import Settings, stopwatch_of
from daceml.operations.measuring.slopes import slopes
from daceml.operations.measuring.stopwatches import CudaEvents, CudaGraph, WallClock
from tests.operations.measuring.fake_cuda import LAUNCH_S, NODE_S, Cuda


def test_a_wall_clock_leaves_out_what_is_done_before():
    now = [0.0]

    def take(seconds: float) -> None:
        now[0] += seconds

    timed = WallClock(clock_s=lambda: now[0]).prepared(lambda: take(2.0), lambda: take(5.0))
    assert timed() == 2.0
    assert now[0] == 7.0


def test_eager_launches_count_per_kernel():
    cuda = Cuda()
    events = CudaEvents(cuda=cuda, stream=cuda.Stream())
    assert slopes(cuda.chain(events, 30e-6)).median_s == pytest.approx(30e-6 + LAUNCH_S)


def test_a_graph_is_captured_once_for_each_length_and_replayed():
    cuda = Cuda()
    graph = CudaGraph(events=CudaEvents(cuda=cuda, stream=cuda.Stream()))
    timed = cuda.chain(graph, 30e-6)
    assert timed(5) == pytest.approx(LAUNCH_S + 5 * (NODE_S + 30e-6))
    assert timed(5) == pytest.approx(LAUNCH_S + 5 * (NODE_S + 30e-6))
    assert cuda.log == ["kernel"] * 5 + ["synchronize", "replay", "replay"], "once before capture"
    # the graph's own launch is the same for all lengths
    assert slopes(timed).median_s == pytest.approx(30e-6 + NODE_S)


def test_a_device_and_a_mode_choose_the_stopwatch():
    cuda = Cuda()
    assert isinstance(stopwatch_of(Settings()), WallClock)
    assert isinstance(stopwatch_of(Settings(device="cuda:0"), cuda), CudaEvents)
    assert isinstance(stopwatch_of(Settings(device="cuda:0", mode="graph"), cuda), CudaGraph)

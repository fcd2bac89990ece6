"""Blocks of a step that nobody has run, on its task graph and in an allocator."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from daceml.errors import AllocationError, DeviceMemoryError
from daceml.prediction.model_step import ModelStep
from daceml.prediction.model_steps.host_cost import HostCost
from daceml.prediction.model_steps.predict_step import captured
from daceml.prediction.model_steps.step_allocations import memory_in_order, step_allocations
from daceml.prediction.model_steps.step_graph import step_graph
from daceml.simulation import TaskGraph, simulate
from daceml.simulation.memory import (
    Allocations,
    CachingAllocator,
    accumulated,
    memory_over_time,
    recomputed,
)
from tests.prediction.steps import step_of
from tests.support.golden import raises

MB = 1 << 20


def step() -> ModelStep:
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.LayerNorm(256))
    return captured(model, torch.empty(512, 256, device="meta"))


@pytest.mark.parametrize("graphed", [False, True])
def test_every_step_of_a_graph_has_the_same_peak(graphed: bool):
    one = step()
    assert one.memory is not None
    graph = step_graph(one, np.full(len(one.operations), 10.0), host=HostCost(graphed=graphed))
    schedule = simulate(graph)
    seen = memory_over_time(schedule, step_allocations(one, graph))
    if not graphed:
        assert seen.peak_bytes == one.memory.peak
    else:  # all that a graph takes, it takes at once
        assert seen.peak_bytes > one.memory.peak
    begins = [float(schedule.start_us[graph.tasks.step == number].min()) for number in range(3)]
    parts = np.searchsorted(seen.time_us, [*begins, np.inf])
    peaks = {int(seen.allocated_bytes[a:b].max()) for a, b in pairwise(parts.tolist())}
    assert peaks == {seen.peak_bytes}


def test_operations_one_after_the_other():
    one = step()
    assert one.memory is not None
    seen = memory_in_order(one)
    assert seen.peak_bytes == one.memory.peak
    assert one.operations[int(seen.peak_us)].phase == "backward"
    assert sum(seen.live_at(seen.peak_us).values()) == one.memory.peak


def test_what_an_allocator_reserves():
    one = step()
    assert one.memory is not None
    seen = memory_in_order(one, allocator=CachingAllocator())
    assert seen.peak_bytes == one.memory.peak
    assert seen.peak_bytes < seen.peak_reserved_bytes < 2 * seen.peak_bytes + 22 * MB
    capacity_bytes = seen.peak_bytes - MB
    with raises(DeviceMemoryError, f"{capacity_bytes / 1e6:.1f} MB"):
        memory_in_order(one, allocator=CachingAllocator(capacity_bytes=capacity_bytes))


def test_a_step_without_known_blocks_is_refused():
    with raises(AllocationError, "told", "daceml.prediction.model_steps.predict_step.captured"):
        memory_in_order(step_of("a forward x 10"))


def test_the_graph_of_another_step_is_refused():
    one, other = step(), step_of("a forward x 10", "b forward x 10")
    graph = step_graph(other, [10.0, 10.0])
    with raises(AllocationError, "2", sum(one.launches for one in one.operations), "step_graph"):
        step_allocations(one, graph)


class Blocks(nn.Module):
    """Residual perceptrons, recomputed or not."""

    def __init__(self, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
            for _ in range(4)
        )
        self.checkpoints = checkpoints

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            seen = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
            x = x + seen
        return x.square().mean()


def predicted_peak(one: ModelStep, change: Callable[..., tuple[TaskGraph, Allocations]]) -> int:
    graph = step_graph(one, np.full(len(one.operations), 10.0))
    changed, blocks = change(graph, step_allocations(one, graph))
    return memory_over_time(simulate(changed), blocks).peak_bytes


def test_recomputation_of_a_step_that_nobody_has_run():
    x = torch.empty(4096, 64, device="meta")
    one, other = captured(Blocks(), x), captured(Blocks(checkpoints=True), x)
    assert one.memory is not None and other.memory is not None
    assert other.memory.peak < 0.6 * one.memory.peak
    seen = predicted_peak(one, lambda *told: recomputed(*told, layers=r"^blocks\.\d"))
    assert seen == pytest.approx(other.memory.peak, rel=0.01)


def test_accumulation_of_a_step_that_nobody_has_run():
    whole, half = (captured(Blocks(), torch.empty(n, 64, device="meta")) for n in (4096, 2048))
    assert whole.memory is not None and half.memory is not None
    seen = predicted_peak(whole, lambda *told: accumulated(*told, every=2))
    assert half.memory.peak < seen
    # the whole batch is there all the time
    other_half = 2048 * 64 * 4
    assert seen == pytest.approx(half.memory.peak + half.memory.gradients + other_half, rel=0.002)

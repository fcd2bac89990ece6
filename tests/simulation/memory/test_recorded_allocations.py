"""Blocks of a recorded run find the tasks that take and free them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import daceml
from benchmarks.trace_examples import as_bytes, document, memory, operator
from daceml.errors import AllocationError
from daceml.prediction.model_steps.predict_step import captured
from daceml.profiling.kineto import read_trace, trace_of
from daceml.simulation import build, simulate
from daceml.simulation.memory import Allocations, memory_over_time, recorded_allocations, replay_trace
from daceml.simulation.memory.accumulation import accumulated
from daceml.simulation.memory.recomputation import recomputed
from tests.support.golden import raises

DATA = os.environ.get("DACEML_DATA")
PROCESSOR = {"Device Type": 0, "Device Id": -1}


def blocks_of(*events: Any) -> list[tuple[int, str, str]]:
    """Of operators a (0 to 10), b (20 to 30) and c (40 to 50): bytes, taker, giver."""
    operators = [operator(name, at, 10) for name, at in (("a", 0), ("b", 20), ("c", 40))]
    trace = trace_of(as_bytes(document(*operators, *events)), "run.json")
    graph = build(trace)
    found = recorded_allocations(trace, graph)
    names = {-1: "", **{task: graph.name_of(task) for task in graph}}
    return [
        (size, names[first], names[last])
        for size, first, last in zip(
            found.size_bytes.tolist(), found.taken_by.tolist(), found.given_back_by.tolist(), strict=True
        )
    ]


def event(at_us: float, size: int, address: int) -> dict[str, Any]:
    return memory(at_us, size, Addr=address, **PROCESSOR)


def test_events_belong_to_the_task_that_runs():
    assert blocks_of(event(5, 100, 1), event(25, 7, 2), event(45, -100, 1)) == [(100, "a", "c"), (7, "b", "")]


def test_between_tasks_the_later_one_takes_and_the_earlier_one_gives_back():
    assert blocks_of(event(15, 100, 1), event(35, -100, 1)) == [(100, "b", "b")]
    assert blocks_of(event(5, 100, 1), event(35, -100, 1)) == [(100, "a", "b")]


def test_threads_take_turns():
    # torch's backward phase has a thread of its own, whose tasks may stand before those of the others
    operators = [operator("a", 0, 10), operator("b", 20, 10, thread=77), operator("c", 40, 10)]
    trace = trace_of(as_bytes(document(*operators, event(25, 100, 1), event(45, -100, 1))), "run.json")
    graph = build(trace)
    found = recorded_allocations(trace, graph)
    assert graph.name_of(int(found.taken_by[0])) == "b"
    assert graph.name_of(int(found.given_back_by[0])) == "c"
    assert memory_over_time(simulate(graph), found).allocated_bytes.tolist() == [100, 0]


def test_what_is_needed_for_a_moment_is_one_block_as_large_as_the_most_at_once():
    # 30, then 50 of which 10 stay
    events = [event(1, 30, 1), event(2, -30, 1), event(3, 40, 2), event(4, 10, 3), event(5, -40, 2)]
    assert blocks_of(*events) == [(10, "a", ""), (40, "a", "a")]


def test_an_address_may_serve_again():
    assert blocks_of(event(5, 8, 1), event(25, -8, 1), event(26, 9, 1), event(45, -9, 1)) == [
        (8, "a", "b"),
        (9, "b", "c"),
    ]


def test_what_was_taken_before_is_left_out():
    assert blocks_of(event(5, -100, 1), event(6, 4, 2)) == [(4, "a", "")]


def test_what_a_device_held_before_the_run_comes_first():
    def told(at_us: float, size: int, address: int, total: int) -> dict[str, Any]:
        return memory(at_us, size, Addr=address, **{"Total Allocated": total, "Total Reserved": 1000})

    operators = [operator(name, at, 10) for name, at in (("a", 0), ("b", 20))]
    events = [told(5, 100, 1, 800), told(6, -300, 2, 500), told(25, -100, 1, 400)]
    trace = trace_of(as_bytes(document(*operators, *events)), "run.json")
    graph = build(trace)
    blocks = recorded_allocations(trace, graph, device=0)
    assert blocks.size_bytes.tolist() == [300, 400, 100]
    assert blocks.taken_by.tolist() == [-1, -1, 0] and blocks.given_back_by.tolist() == [0, -1, 1]
    assert replay_trace(trace).recorded.peak_bytes == 800
    assert memory_over_time(simulate(graph), blocks).peak_bytes == 800


def test_a_run_that_did_not_record_memory_is_refused():
    with raises(AllocationError, "run.json", "processor", "profile_memory=True"):
        blocks_of()


@pytest.mark.skipif(not DATA, reason="DACEML_DATA names no folder of real traces")
@pytest.mark.parametrize("device", ["h100", "mi300"])
def test_launches_of_a_real_run_hold_what_its_events_tell(device: str):
    name = f"traces/models_{device}/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    trace = read_trace(Path(DATA or "") / name)
    graph = build(trace)
    seen = memory_over_time(simulate(graph), recorded_allocations(trace, graph, 0))
    recorded = replay_trace(trace).recorded
    assert seen.peak_bytes == pytest.approx(recorded.peak_bytes, rel=0.01)


class Block(nn.Module):
    """A residual perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Net(nn.Module):
    """Four blocks."""

    def __init__(self, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.checkpoints = checkpoints

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = (
                torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
                if self.checkpoints
                else block(x)
            )
        return x.square().mean()


def test_a_recorded_step_tells_the_peaks_of_recomputation_and_of_accumulation():
    model, x = Net(), torch.randn(512, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with daceml.profile(model, optimizer, steps=2, warmup=1, unprofiled=0, memory=True) as recording:
        while not recording.done:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
            recording.step()
    graph = build(recording.trace)
    blocks = recorded_allocations(recording.trace, graph)

    def peak(graph: Any, blocks: Allocations) -> int:
        return memory_over_time(simulate(graph), blocks).peak_bytes + held

    plain = _peak_and_held(Net(), x)
    held = plain[1]
    assert peak(graph, blocks) == pytest.approx(plain[0], rel=0.01)
    checkpointed = _peak_and_held(Net(checkpoints=True), x)
    assert peak(*recomputed(graph, blocks, layers=r"^blocks\.\d")) == pytest.approx(checkpointed[0], rel=0.02)
    # a part's activations, and gradients of the parts before
    weights = sum(one.nbytes for one in model.parameters())
    half = _peak_and_held(Net(), x[:256])
    part = half[0] + held - half[1]
    accumulating = peak(*accumulated(graph, blocks, every=2))
    assert part < accumulating <= part + weights
    assert np.isclose(accumulating, part + weights, rtol=0.05)


def _peak_and_held(model: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """From shapes alone."""
    step = captured(model, x, optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1), processor=True)
    assert step.memory is not None and step.memory.allocations is not None
    blocks = step.memory.allocations
    return step.memory.peak, int(blocks.size_bytes[blocks.taken_by == -1].sum())

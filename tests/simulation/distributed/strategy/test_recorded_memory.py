from __future__ import annotations

from dataclasses import replace

import numpy as np

from daceml.profiling.trace import Memory, Trace
from daceml.simulation.distributed.strategy.recorded_memory import recorded_memory
from tests.support.recorded_calls import Recording


def trace(allocated: list[float], optimizer: str, device: int = 0) -> Trace:
    count = len(allocated)
    events = Memory(
        time_us=np.arange(count, dtype=float), device=np.full(count, device), size_bytes=np.ones(count),
        allocated_bytes=np.array(allocated), reserved_bytes=np.array(allocated),
        address=np.zeros(count, np.int64),
    )  # fmt: skip
    run = Recording()
    run.operator("aten::mm", 0, 1)
    return replace(run.trace(daceml={"optimizer": {"name": optimizer}}), memory=events)


def test_the_peak_is_that_of_the_allocator():
    found = recorded_memory(trace([500.0, 900.0, 500.0], "Adam"), 100.0)
    assert found is not None
    assert found.peak_bytes == 900
    assert (found.parameters, found.gradients, found.optimizer, found.other) == (100, 100, 200, 100)
    assert found.activations == found.boundaries == 400, "recomputation is taken to save nothing"


def test_segments_beyond_their_blocks_and_the_context_stay():
    run = trace([500.0, 900.0, 500.0], "Adam")
    run = replace(run, memory=replace(run.memory, reserved_bytes=np.array([600.0, 1000.0, 1000.0])))
    found = recorded_memory(run, 100.0, context_bytes=50.0)
    assert found is not None
    assert found.peak_bytes == 1000 + 50 and found.activations == 400 and found.other == 100 + 100 + 50


def test_of_an_unknown_optimizer_nothing_can_be_spread():
    found = recorded_memory(trace([500.0, 900.0], "Unheard"), 100.0)
    assert found is not None
    assert (found.optimizer, found.other, found.peak_bytes) == (0, 300, 900)


def test_without_events_nobody_knows():
    run = Recording()
    run.operator("aten::mm", 0, 1)
    assert recorded_memory(run.trace(), 100.0) is None


def test_on_a_processor_only_what_rises_is_seen():
    found = recorded_memory(trace([10.0, 460.0, 10.0], "Adam", device=-1), 100.0)
    assert found is not None
    assert (found.parameters, found.gradients, found.optimizer, found.other) == (100, 100, 200, 0)
    assert found.activations == 350, "the gradients of the step are a part of what rises"

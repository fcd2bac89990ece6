"""Memory events of a run: replayed, from the middle of a run on, and beside what the profiler said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.trace_examples import as_bytes, document, memory, operator
from daceml.errors import AllocationError
from daceml.profiling.kineto import read_trace, trace_of
from daceml.profiling.trace import Trace
from daceml.simulation.memory import AllocatorEvents, CachingAllocator, replay_events, replay_trace
from daceml.simulation.memory.events import PROCESSOR, trace_events
from tests.support.golden import raises

MB = 1 << 20
DATA = os.environ.get("DACEML_DATA")


def read(*events: Any) -> Trace:
    return trace_of(as_bytes(document(operator("a", 0, 50), *events)), "run.json")


def told(at_us: float, size: int, address: int, allocated: int, reserved: int) -> dict[str, Any]:
    totals = {"Total Allocated": allocated, "Total Reserved": reserved}
    return memory(at_us, size, Addr=address, **totals)


def events_of(*rows: tuple[int, int], held: int = 0) -> AllocatorEvents:
    """(block, bytes) of each, a microsecond apart."""
    table = np.array(rows, np.int64).reshape(-1, 2)
    time_us = np.arange(len(rows), dtype=np.float64)
    return AllocatorEvents(time_us=time_us, block=table[:, 0], size_bytes=table[:, 1], held_bytes=held)


def test_a_processor_allocates_what_it_is_asked_for():
    replayed = replay_events(events_of((1, 100), (2, 50), (1, -100), (3, 10)))
    assert replayed.allocated_bytes.tolist() == [100, 150, 50, 60]
    assert (replayed.peak_bytes, replayed.peak_us, replayed.fragmentation) == (150, 1.0, 0.0)


def test_an_address_may_serve_again():
    replayed = replay_events(events_of((1, 100), (1, -100), (1, 30)), CachingAllocator())
    assert replayed.allocated_bytes.tolist() == [512, 0, 512]
    assert replayed.reserved_bytes.tolist() == [2 * MB] * 3


def test_what_was_taken_before_comes_out_of_what_was_held():
    replayed = replay_events(events_of((9, -40), (1, 10), held=100))
    assert replayed.allocated_bytes.tolist() == [60, 70]
    assert replayed.peak_bytes == 100
    assert replayed.peak_us == 0.0


def test_a_trace_begins_in_the_middle_of_a_run():
    trace = read(
        told(10, 512, 4096, 1536, 4 * MB), told(20, -1024, 8192, 512, 4 * MB), told(30, -512, 4096, 0, 4 * MB)
    )
    seen = replay_trace(trace)
    assert (seen.recorded.held_bytes, seen.recorded.held_reserved_bytes) == (1024, 4 * MB)
    assert seen.replayed.allocated_bytes.tolist() == [1536, 512, 0]
    assert seen.unknown_frees == 1
    assert (seen.allocated_error, seen.reserved_error) == (0.0, 0.0)


def test_what_the_cache_cannot_hold_is_asked_of_the_device():
    trace = read(told(10, 30 * MB, 1 << 30, 40 * MB, 60 * MB), told(20, 30 * MB, 1 << 31, 70 * MB, 90 * MB))
    seen = replay_trace(trace)
    assert seen.recorded.held_bytes == 10 * MB
    # 50 MB are cached: one of the two fits
    assert seen.replayed.reserved_bytes.tolist() == [60 * MB, 90 * MB]
    assert seen.reserved_error == 0.0
    assert seen.without_cache.reserved_bytes.tolist() == [90 * MB, 120 * MB]


def test_an_error_of_the_model_is_seen():
    trace = read(told(10, 30 * MB, 1 << 30, 30 * MB, 30 * MB), told(20, 5 * MB, 1 << 31, 35 * MB, 40 * MB))
    seen = replay_trace(trace)
    assert seen.allocated_error == 0.0
    assert seen.reserved_error == pytest.approx(0.25)  # a segment of 20 MB, where the run says 10


def test_the_processor_of_a_trace():
    trace = read(
        memory(10, 8, **{"Device Type": 0, "Device Id": -1, "Total Allocated": 108}),
        memory(11, 512),
        memory(12, -8, **{"Device Type": 0, "Device Id": -1, "Total Allocated": 100}),
    )
    seen = replay_trace(trace, PROCESSOR)
    assert seen.replayed.allocated_bytes.tolist() == [108, 100]
    assert np.isnan(seen.reserved_error)


def test_a_run_without_memory_events_is_refused():
    with raises(AllocationError, "run.json", "device 3", "profile_memory=True"):
        trace_events(read(), 3)


def test_events_without_addresses_are_refused():
    with raises(AllocationError, "run.json", "device 0", "1.11"):
        trace_events(read(memory(10, 8, Addr=None)))


@pytest.mark.skipif(not DATA, reason="DACEML_DATA names no folder of real traces")
@pytest.mark.parametrize("device", ["h100", "mi300"])
@pytest.mark.parametrize(
    "model", ["gaunernst_bert-small-uncased__1016001", "Qwen_Qwen1.5-0.5B-Chat__1016005"]
)
def test_inference_on_real_devices(device: str, model: str):
    seen = replay_trace(read_trace(Path(DATA or "") / f"traces/models_{device}/{model}.json.gz"))
    assert seen.allocated_error <= 0.01
    assert seen.reserved_error <= 0.01
    # the cache was used: without it, the device would have been asked for more
    assert seen.without_cache.peak_reserved_bytes > seen.recorded.peak_reserved_bytes

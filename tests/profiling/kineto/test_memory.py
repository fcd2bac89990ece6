"""What allocators did, as old and new profilers tell it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.trace_examples import as_bytes, document, memory, operator
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from tests.support.golden import golden


def read(*events: Any) -> Trace:
    return trace_of(as_bytes(document(operator("a", 0, 50), *events)), "run.json")


def test_taken_and_given_back():
    totals = {"Total Allocated": 512, "Total Reserved": 2048}
    found = read(memory(30, -512), memory(10, 512, **totals)).memory
    assert found.time_us.tolist() == [10, 30]
    assert found.size_bytes.tolist() == [512, -512]
    assert found.address.tolist() == [4096, 4096]
    np.testing.assert_array_equal(found.allocated_bytes, [512, np.nan])
    np.testing.assert_array_equal(found.reserved_bytes, [2048, np.nan])


def test_devices_old_and_new():
    old = {"ph": "i", "name": "[memory]", "ts": 5 + 1_700_000_000_000_000, "pid": 1, "tid": 1, "s": "t"}
    found = read(
        {**old, "args": {"Device Type": 0, "Device Id": -1, "Bytes": 4}},
        memory(10, 8, **{"Device Type": 6, "Device Id": 2}),
        memory(11, 8, **{"Device Type": 0, "Device Id": 0}),
    ).memory
    assert found.device.tolist() == [-1, 2, -1]


@pytest.mark.parametrize(
    ("told", "address"),
    [(2**62 + 1, 2**62 + 1), (2**63, -1), (-5, -1), (4096.5, -1), (None, -1), ("0x10", -1)],
)
def test_addresses_keep_every_digit_or_are_unknown(told: Any, address: int):
    assert read(memory(10, 8, Addr=told)).memory.address.tolist() == [address]


@pytest.mark.parametrize(
    "odd", [{"Bytes": None}, {"Bytes": "4"}, {"Bytes": 1e300}, {"Device Id": -7}, {"Device Id": [0]}]
)
def test_what_says_too_little_is_left_out(odd: dict[str, Any]):
    recorded = read(memory(10, 8, **odd), memory(1e12, 8), {**memory(1, 8), "args": 3})
    assert len(recorded.memory.time_us) == 0
    assert recorded.notes == (golden(),)
    assert "memory" in recorded.notes[0] and "3" in recorded.notes[0]

"""Memory over time: peaks, budgets, and who is live."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.simulation.memory.timeline import MemoryTimeline, OverBudget


def timeline(*rows: tuple[float, int, int, int, int], held: int = 0) -> MemoryTimeline:
    """(time, block, size, allocated, reserved) of each event."""
    table = np.array(rows, np.float64).reshape(-1, 5)
    block, size, allocated, reserved = table[:, 1:].astype(np.int64).T
    return MemoryTimeline(
        time_us=table[:, 0],
        block=block,
        size_bytes=size,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        held_bytes=held,
        held_reserved_bytes=held,
    )


HILL = timeline((1, 1, 30, 30, 40), (2, 2, 50, 80, 100), (4, 2, -50, 30, 100), (7, 3, 20, 50, 100))


def test_peaks_and_fragmentation():
    assert (HILL.peak_bytes, HILL.peak_us, HILL.peak_reserved_bytes) == (80, 2.0, 100)
    assert HILL.fragmentation == pytest.approx(0.2)


def test_levels_between_events():
    assert [HILL.at(time) for time in (0, 1, 3.9, 4, 100)] == [
        (0, 0),
        (30, 40),
        (80, 100),
        (30, 100),
        (50, 100),
    ]


def test_who_is_live():
    assert HILL.live_at(3) == {2: 50, 1: 30}
    assert list(HILL.live_at(3)) == [2, 1]
    assert HILL.live_at(4) == {1: 30}
    assert HILL.live_at(0.5) == {}


def test_at_a_moment_of_several_events_its_highest_point_counts():
    both = timeline((1, 1, 30, 30, 30), (1, 2, 9, 39, 39), (1, 1, -30, 9, 39))
    assert both.live_at(1) == {1: 30, 2: 9}


def test_when_a_budget_is_exceeded():
    seen = timeline((1, 1, 30, 30, 30), (3, 1, -30, 0, 0), (5, 2, 50, 50, 50))
    assert seen.over(20) == (
        OverBudget(start_us=1, end_us=3, excess_bytes=10),
        OverBudget(start_us=5, end_us=float("inf"), excess_bytes=30),
    )
    assert seen.over(50) == ()


def test_what_was_held_before_may_be_too_much():
    seen = timeline((2, 9, -30, 10, 10), held=40)
    assert seen.over(20) == (OverBudget(start_us=0, end_us=2, excess_bytes=20),)
    assert seen.peak_bytes == 40


def test_nothing_happened():
    nothing = timeline(held=7)
    assert (len(nothing), nothing.peak_bytes, nothing.peak_us, nothing.at(3)) == (0, 7, 0.0, (7, 7))
    assert nothing.over(5) == (OverBudget(start_us=0, end_us=float("inf"), excess_bytes=2),)

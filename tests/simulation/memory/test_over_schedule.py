"""What a simulated graph holds when."""

from __future__ import annotations

import numpy as np

from daceml.errors import AllocationError, DeviceMemoryError
from daceml.simulation import simulate
from daceml.simulation.memory import Allocations, CachingAllocator, memory_over_time
from tests.support.golden import raises
from tests.support.task_stories import graph_of

MB = 1 << 20
STORY = graph_of("a cpu 2", "b cpu 3", "c cpu 4")
A, B, C = range(3)


def test_blocks_live_from_the_start_of_one_task_to_the_end_of_another():
    seen = memory_over_time(simulate(STORY), Allocations.of([(100, A, B), (10, B, C)]))
    assert list(zip(seen.time_us, seen.allocated_bytes, strict=True)) == [(0, 100), (2, 110), (5, 10), (9, 0)]
    assert seen.live_at(seen.peak_us) == {0: 100, 1: 10}


def test_what_one_task_gives_back_the_next_one_finds():
    seen = memory_over_time(simulate(STORY), Allocations.of([(100, A, A), (100, B, B), (100, C, C)]))
    assert seen.peak_bytes == 100


def test_a_task_without_length_holds_its_memory_too():
    graph = graph_of("a cpu 2", "moment cpu 0", "c cpu 4")
    seen = memory_over_time(simulate(graph), Allocations.of([(100, A, A), (70, 1, 1), (5, A, C)]))
    assert seen.allocated_bytes.tolist()[-4:] == [5, 75, 5, 0]


def test_blocks_of_nobody_are_there_before_and_stay():
    seen = memory_over_time(simulate(STORY), Allocations.of([(7, -1, -1), (5, -1, A), (3, C, -1)]))
    assert seen.allocated_bytes.tolist() == [7, 12, 7, 10]


def test_lanes_that_overlap_hold_their_memory_together():
    graph = graph_of("a cpu 2", "k gpu0 10 with a", "l gpu1 3 after a")
    blocks = Allocations.of([(100, 1, 1), (50, 2, 2)])
    assert memory_over_time(simulate(graph), blocks).peak_bytes == 150
    apart = graph_of("a cpu 2", "k gpu0 10 with a", "l gpu1 3 after k")
    assert memory_over_time(simulate(apart), blocks).peak_bytes == 100


def test_an_allocator_rounds_and_keeps():
    seen = memory_over_time(simulate(STORY), Allocations.of([(1, A, A)]), allocator=CachingAllocator())
    assert (seen.peak_bytes, seen.peak_reserved_bytes) == (512, 2 * MB)
    assert seen.reserved_bytes[-1] == 2 * MB
    small = CachingAllocator(capacity_bytes=MB)
    with raises(DeviceMemoryError, "1.0 MB"):
        memory_over_time(simulate(STORY), Allocations.of([(1, A, A)]), allocator=small)


def test_tasks_in_order_have_the_same_peak():
    generator = np.random.default_rng(0)
    for _ in range(30):
        first, second = generator.integers(-1, 3, (2, 8))
        last = np.where(generator.random(8) < 0.2, -1, np.maximum(np.maximum(first, second), 0))
        blocks = Allocations(size_bytes=generator.integers(0, 99, 8), taken_by=first, given_back_by=last)
        held = [
            sum(
                size
                for size, taker, giver in zip(blocks.size_bytes, first, last, strict=True)
                if taker <= task and (giver == -1 or giver >= task)
            )
            for task in range(3)
        ]
        assert memory_over_time(simulate(STORY), blocks).peak_bytes == max(held)


def test_what_has_no_bytes_is_nowhere():
    seen = memory_over_time(simulate(STORY), Allocations.of([(0, A, B), (4, A, B), (0, -1, C)]))
    assert seen.block.tolist() == [1, 1] and seen.live_at(1) == {1: 4}


def test_blocks_that_are_given_back_before_they_are_taken_are_refused():
    with raises(AllocationError, "block 1", "'a'", "task 0", "2 us", "'c'", "task 2", "5 us"):
        memory_over_time(simulate(STORY), Allocations.of([(1, A, B), (7, C, A)]))


def test_blocks_follow_their_operations_to_other_tasks():
    blocks = Allocations.of([(7, 0, 1), (5, -1, -1)])
    moved = blocks.with_tasks(np.array([4, 6]), np.array([5, 7]))
    assert (moved.taken_by.tolist(), moved.given_back_by.tolist()) == ([4, -1], [7, -1])


def test_tasks_that_there_are_not_are_refused():
    with raises(AllocationError, "block 0", "task 3", "-1"):
        memory_over_time(simulate(STORY), Allocations.of([(7, A, 3)]))


def test_columns_that_do_not_fit_are_refused():
    with raises(AllocationError, "block 1", "-5 bytes"):
        Allocations.of([(7, A, A), (-5, A, A)])
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    with raises(AllocationError, "2", "1"):
        Allocations(size_bytes=two, taken_by=one, given_back_by=one)

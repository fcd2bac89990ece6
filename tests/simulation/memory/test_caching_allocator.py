"""The caching allocator: sizes, segments, which free block is taken, what is split and joined."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daceml.errors import AllocatorError, DeviceMemoryError
from daceml.simulation.memory.caching_allocator import CachingAllocator, rounded_bytes, segment_bytes
from tests.support.golden import raises

KB, MB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("asked", "taken"), [(0, 512), (1, 512), (512, 512), (513, 1024), (10 * MB, 10 * MB)]
)
def test_sizes_are_multiples_of_512(asked: int, taken: int):
    assert rounded_bytes(asked) == taken


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MB),
        (MB, 2 * MB),
        (MB + 512, 20 * MB),
        (10 * MB - 512, 20 * MB),
        (10 * MB, 10 * MB),
        (10 * MB + 512, 12 * MB),
    ],
)
def test_segments_by_the_size_of_the_block(block: int, segment: int):
    assert segment_bytes(block) == segment


def test_small_blocks_share_a_segment():
    allocator = CachingAllocator()
    first, second = allocator.take(700 * KB), allocator.take(600 * KB)
    assert second == first + 700 * KB
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (1300 * KB, 2 * MB)
    allocator.take(800 * KB)  # 748 KB are left
    assert allocator.reserved_bytes == 4 * MB


def test_what_is_freed_stays_reserved_and_serves_again():
    allocator = CachingAllocator()
    first = allocator.take(30 * MB)
    allocator.give_back(first)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 30 * MB)
    assert allocator.take(29 * MB) == first
    assert allocator.reserved_bytes == 30 * MB


def test_a_large_block_stays_whole_where_a_megabyte_or_less_is_left():
    allocator = CachingAllocator()
    allocator.give_back(allocator.take(30 * MB))
    block = allocator.take(29 * MB)
    assert allocator.size_of(block) == 30 * MB
    allocator.give_back(block)
    block = allocator.take(29 * MB - 512)
    assert allocator.size_of(block) == 29 * MB - 512


def test_the_smallest_block_that_fits_is_taken_and_of_equal_ones_the_lowest():
    allocator = CachingAllocator()
    large = allocator.add_segment(40 * MB, small=False, address=1 << 30)
    high = allocator.add_segment(14 * MB, small=False, address=3 << 30)
    low = allocator.add_segment(14 * MB, small=False, address=2 << 30)
    assert [allocator.take(13 * MB) for _ in range(3)] == [low, high, large]


def test_free_neighbours_are_joined():
    allocator = CachingAllocator()
    blocks = [allocator.take(5 * MB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MB
    for one in (blocks[0], blocks[2], blocks[1]):
        allocator.give_back(one)
    assert sorted(size for _, size in allocator.free_blocks) == [15 * MB]
    assert allocator.take(15 * MB) == blocks[0]
    assert allocator.reserved_bytes == 20 * MB


def test_pools_and_streams_do_not_help_each_other():
    allocator = CachingAllocator()
    allocator.give_back(allocator.take(5 * MB))
    allocator.take(512)
    assert allocator.reserved_bytes == 22 * MB
    allocator.take(5 * MB, stream=7)
    assert allocator.reserved_bytes == 42 * MB


def test_only_segments_without_a_taken_block_go_back_to_the_device():
    allocator = CachingAllocator()
    kept, freed = allocator.take(5 * MB), allocator.take(30 * MB)
    allocator.give_back(freed)
    assert allocator.empty_cache() == 30 * MB
    assert allocator.reserved_bytes == 20 * MB
    allocator.give_back(kept)
    assert allocator.empty_cache() == 20 * MB
    assert list(allocator.free_blocks) == []


def test_the_cache_is_given_up_before_memory_is_said_to_be_short():
    allocator = CachingAllocator(capacity_bytes=50 * MB)
    allocator.give_back(allocator.take(30 * MB))
    allocator.take(40 * MB)
    assert allocator.reserved_bytes == 40 * MB
    with raises(DeviceMemoryError, "21.0 MB", "41.9 MB", "52.4 MB"):
        allocator.take(20 * MB)


def test_a_block_is_given_back_once():
    allocator = CachingAllocator()
    block = allocator.take(1)
    allocator.give_back(block)
    with raises(AllocatorError, f"{block:#x}"):
        allocator.give_back(block)
    with raises(AllocatorError, "-1 bytes"):
        allocator.take(-1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30 * MB), st.integers(0, 1000)), max_size=60))
def test_nothing_is_lost_and_nothing_overlaps(asked: list[tuple[int, int]]):
    """Each request, and behind it, of an odd number, the return of one that is taken."""
    allocator = CachingAllocator()
    taken: list[int] = []
    for size, number in asked:
        taken.append(allocator.take(size))
        assert allocator.size_of(taken[-1]) >= size
        if number % 2:
            allocator.give_back(taken.pop(number % len(taken)))
        ranges = sorted([*((a, allocator.size_of(a)) for a in taken), *allocator.free_blocks])
        assert sum(size for _, size in ranges) == allocator.reserved_bytes
        assert all(a + n <= b for (a, n), (b, _) in pairwise(ranges))
        assert sum(allocator.size_of(a) for a in taken) == allocator.allocated_bytes
    for one in taken:
        allocator.give_back(one)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0)

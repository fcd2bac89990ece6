"""Workspace offsets: nothing that is alive overlaps, and what is dead is used again."""

from __future__ import annotations

import dace
from hypothesis import given
from hypothesis import strategies as st

from daceml.codegen.planning.workspace_offsets import ALIGNMENT_BYTES, Interval, plan_offsets


def interval(name: str, size_bytes: object, first: int, last: int) -> Interval:
    return Interval(name=name, size_bytes=size_bytes, first=first, last=last)  # pyright: ignore[reportArgumentType]


def test_memory_of_a_dead_array_is_used_again():
    layout = plan_offsets([interval("a", 640, 0, 1), interval("b", 640, 1, 2), interval("c", 640, 2, 3)])
    assert layout.offsets["a"] == layout.offsets["c"] != layout.offsets["b"]
    assert layout.size_bytes == 1280


def test_a_small_array_fills_a_gap_between_large_ones():
    layout = plan_offsets(
        [
            interval("low", 1024, 0, 9),
            interval("gap", 1024, 0, 1),
            interval("high", 1024, 0, 9),
            interval("new", 512, 5, 6),
        ]
    )
    assert layout.size_bytes == 3072


def test_nothing_needs_no_workspace():
    assert plan_offsets([]).size_bytes == 0
    assert plan_offsets([interval("empty", 0, 0, 3)]).size_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 6)), max_size=20))
def test_arrays_that_are_alive_together_never_overlap(lives: list[tuple[int, int, int]]):
    intervals = [interval(f"t{i}", n, first, first + span) for i, (n, first, span) in enumerate(lives)]
    layout = plan_offsets(intervals)
    for a in intervals:
        start = layout.offsets[a.name]
        assert start % ALIGNMENT_BYTES == 0
        assert start + a.size_bytes <= layout.size_bytes
        for b in intervals:
            if a is not b and a.meets(b) and a.size_bytes and b.size_bytes:
                other = layout.offsets[b.name]
                assert start + a.size_bytes <= other or other + b.size_bytes <= start


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=10),
    st.integers(1, 70),
)
def test_symbolic_offsets_hold_for_every_size(lives: list[tuple[int, int, int]], value: int):
    n = dace.symbol("N")
    intervals = [
        interval(f"t{i}", k * n * 4, first, first + span) for i, (k, first, span) in enumerate(lives)
    ]
    layout = plan_offsets(intervals)

    def at(size: object) -> int:
        text = str(size).replace("N", str(value))
        return eval(text, {"int_ceil": lambda a, b: -(-a // b), "Max": max})

    for a in intervals:
        for b in intervals:
            if a is not b and a.meets(b):
                first, second = sorted([(at(layout.offsets[x.name]), at(x.size_bytes)) for x in (a, b)])
                assert first[0] + first[1] <= second[0]
        assert at(layout.offsets[a.name]) + at(a.size_bytes) <= at(layout.size_bytes)

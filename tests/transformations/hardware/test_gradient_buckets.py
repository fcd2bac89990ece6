"""Buckets of gradients: filled in the order in which gradients are ready, as torch fills its own."""

from __future__ import annotations

import pytest

from daceml.profiling.recording.buckets import rule_buckets
from daceml.profiling.recording.gradients import GradientRecord
from daceml.transformations.hardware.gradient_buckets import BucketLimits, Sendable, gradient_buckets
from tests.support.golden import golden

LIMITS = BucketLimits(first_bytes=10, limit_bytes=100)


def of(*rows: tuple[str, int, str]) -> list[Sendable]:
    return [Sendable(parameter=name, size_bytes=size, dtype=dtype) for name, size, dtype in rows]


def test_the_first_bucket_is_small_and_all_are_closed_when_they_are_full():
    ready = of(*((name, 40, "float32") for name in "abcdefg"))
    buckets = gradient_buckets(ready, LIMITS)
    assert [bucket.parameters for bucket in buckets] == [("a",), ("b", "c", "d"), ("e", "f", "g")]
    assert [bucket.size_bytes for bucket in buckets] == [40, 120, 120]
    assert [bucket.closed for bucket in buckets[:2]] == [golden(), golden()]
    assert "10 bytes" in buckets[0].closed and "100 bytes" in buckets[1].closed


def test_element_types_have_buckets_of_their_own_and_what_is_left_comes_last():
    ready = of(("a", 8, "float32"), ("b", 20, "float16"), ("c", 8, "float32"), ("d", 8, "float32"))
    buckets = gradient_buckets(ready, LIMITS)
    assert [(b.parameters, b.dtype) for b in buckets] == [
        (("b",), "float16"),
        (("a", "c"), "float32"),
        (("d",), "float32"),
    ]
    assert buckets[-1].closed == golden()
    assert "gradients" in buckets[-1].closed


@pytest.mark.parametrize("sizes", [[1] * 5, [7, 3, 90, 11, 200, 5, 5], [250], []])
def test_they_are_those_that_the_recorder_tells_of_torch(sizes: list[int]):
    records = [
        GradientRecord(name=str(i), layer="", size_bytes=size, dtype="float32", ready=i)
        for i, size in enumerate(sizes)
    ]
    told = rule_buckets(records, first_bytes=10, limit_bytes=100)
    ours = gradient_buckets(of(*((r.name, r.size_bytes, r.dtype) for r in records)), LIMITS)
    assert [list(bucket.parameters) for bucket in ours] == [bucket["parameters"] for bucket in told]

"""The buckets in which gradients are sent."""

from __future__ import annotations

from daceml.simulation.whatif.buckets import buckets_of
from daceml.simulation.whatif.gradients import Bucket, Gradients


def test_the_first_bucket_is_small_and_the_last_registered_goes_first():
    told = Gradients.of({f"{layer}.weight": 10 for layer in "abcde"})
    assert buckets_of(told, first_bytes=10, limit_bytes=20) == (
        Bucket(size_bytes=10, layers=("e",)),
        Bucket(size_bytes=20, layers=("d", "c")),
        Bucket(size_bytes=20, layers=("b", "a")),
    )


def test_of_a_total_there_are_pieces():
    assert [bucket.size_bytes for bucket in buckets_of(Gradients.of(55), first_bytes=5, limit_bytes=20)] == [
        5, 20, 20, 10,
    ]  # fmt: skip
    assert [bucket.size_bytes for bucket in buckets_of(Gradients.of(5), first_bytes=9, limit_bytes=9)] == [5]

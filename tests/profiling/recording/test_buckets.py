"""Buckets of gradients: torch's own, and what its rule says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed, nn

from daceml.profiling.recording.buckets import bucket_records, reducer_buckets, rule_buckets
from daceml.profiling.recording.gradients import (
    GradientRecord,
    ReadyOrder,
    gradient_records,
    gradients_watched,
)

MB = 2**20


def gradient(name: str, size_bytes: int, ready: int | None = None, dtype: str = "float32") -> GradientRecord:
    return GradientRecord(name=name, layer="", size_bytes=size_bytes, dtype=dtype, ready=ready)


def members(buckets: list[dict[str, object]]) -> list[object]:
    return [bucket["parameters"] for bucket in buckets]


def test_the_first_bucket_holds_one_megabyte_and_the_others_25():
    gradients = [gradient(name, 10 * MB, ready) for ready, name in enumerate("abcde")]
    assert rule_buckets(gradients) == [
        {"size_bytes": 10 * MB, "parameters": ["a"]},
        {"size_bytes": 30 * MB, "parameters": ["b", "c", "d"]},
        {"size_bytes": 10 * MB, "parameters": ["e"]},
    ]


def test_where_nobody_knows_the_order_the_last_registered_goes_first():
    assert members(rule_buckets([gradient("a", 2 * MB), gradient("b", 2 * MB)])) == [["b"], ["a"]]


def test_element_types_do_not_share_a_bucket():
    gradients = [gradient("a", 100, 0), gradient("b", 100, 1, "bfloat16"), gradient("c", 100, 2)]
    assert members(rule_buckets(gradients)) == [["a", "c"], ["b"]]


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=30), st.integers(1, 4000), st.integers(1, 12000))
@settings(max_examples=50)
def test_the_rule_is_that_of_torch(counts: list[int], first: int, limit: int):
    tensors = [torch.empty(count) for count in counts]
    theirs, _ = distributed._compute_bucket_assignment_by_size(
        tensors, [first, limit], [False] * len(tensors), list(range(len(tensors)))
    )
    ours = rule_buckets([gradient(str(i), 4 * n, i) for i, n in enumerate(counts)], first, limit)
    assert members(ours) == [[str(i) for i in row] for row in theirs]


def test_before_the_first_backward_pass_sizes_are_filled_in_reverse():
    gradients = [gradient("a", 8), gradient("b", 16), gradient("c", 4)]
    assert reducer_buckets({"bucket_sizes": "20, 8"}, gradients) == [
        {"size_bytes": 20, "parameters": ["c", "b"]},
        {"size_bytes": 8, "parameters": ["a"]},
    ]
    assert members(reducer_buckets({"bucket_sizes": "6"}, gradients)) == [None], "sizes that do not add up"


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_data_parallel_training_tells_its_own_buckets_which_follow_the_rule():
    plain = nn.Sequential(nn.Linear(600, 600), nn.Linear(600, 600), nn.Linear(600, 10))
    model = nn.parallel.DistributedDataParallel(plain)
    order = ReadyOrder()
    with gradients_watched(model, order):
        for _ in range(3):  # buckets are made anew in the second step
            model(torch.randn(2, 600)).sum().backward()
            order.step()
    gradients = gradient_records(model, order.latest)
    found = bucket_records(model, gradients)
    assert found["source"] == "reducer" and found["module"] == ""
    assert found["buckets"] == rule_buckets(gradients)
    assert members(found["buckets"]) == [
        ["module.2.bias", "module.2.weight", "module.1.bias", "module.1.weight"],
        ["module.0.bias", "module.0.weight"],
    ]

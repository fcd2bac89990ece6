"""Gradients as they are given and recorded, and the buckets that they go in."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.whatif.buckets import buckets_of
from daceml.simulation.whatif.gradients import Bucket, Gradients
from tests.support.golden import raises

ROWS = [
    {"name": "a.weight", "layer": "a", "size_bytes": 40, "dtype": "float32", "ready": 2},
    {"name": "a.bias", "layer": "a", "size_bytes": 4, "dtype": "float32", "ready": 1},
    {"name": "b.weight", "layer": "b", "size_bytes": 60, "dtype": "float32", "ready": 0},
]


def header(**buckets: object) -> dict[str, object]:
    return {"daceml": {"gradients": ROWS, "buckets": buckets or None}}


def test_bytes_by_name_tell_the_layers():
    told = Gradients.of({"encoder.0.weight": 8, "bias": 2})
    assert [row.layer for row in told.rows] == ["encoder.0", ""] and told.total_bytes == 10
    assert Gradients.of("102MB").total_bytes == 102e6 and Gradients.of(7).rows == ()


def test_a_recording_tells_names_layers_and_order():
    told = Gradients.recorded(header())
    assert told is not None and told.total_bytes == 104 and told.sent is None
    assert [(row.name, row.ready) for row in told.rows] == [("a.weight", 2), ("a.bias", 1), ("b.weight", 0)]
    assert Gradients.recorded({"schemaVersion": 1}) is None


def test_buckets_of_a_data_parallel_run_are_taken_as_they_were():
    sent = [{"size_bytes": 64, "parameters": ["b.weight", "a.bias"]}, {"size_bytes": 40, "parameters": None}]
    told = Gradients.recorded(header(source="reducer", buckets=sent))
    assert told is not None
    assert buckets_of(told) == (Bucket(size_bytes=64, layers=("b", "a")), Bucket(size_bytes=40))


def test_buckets_by_rule_are_made_anew_with_other_limits():
    told = Gradients.recorded(header(source="rule", buckets=[{"size_bytes": 104, "parameters": ["a.bias"]}]))
    assert told is not None and told.sent is None
    assert buckets_of(told, first_bytes=50, limit_bytes=50) == (
        Bucket(size_bytes=60, layers=("b",)),
        Bucket(size_bytes=44, layers=("a",)),
    )


def test_gradients_of_two_types_share_no_bucket():
    rows = [dict(row, dtype=kind) for row, kind in zip(ROWS, ("float32", "float16", "float32"), strict=True)]
    told = Gradients.recorded({"daceml": {"gradients": rows}})
    assert told is not None
    assert [bucket.size_bytes for bucket in buckets_of(told)] == [100, 4]


@pytest.mark.parametrize("told", [0, -1, float("inf"), {}, {"a": 0}])
def test_gradients_without_bytes_are_refused(told: object):
    with raises(WhatIfError):
        Gradients.of(told)  # pyright: ignore[reportArgumentType]


def test_a_header_of_another_form_is_refused():
    with raises(WhatIfError, "KeyError", "daceml.profile"):
        Gradients.recorded({"daceml": {"gradients": [{"name": "a"}]}})

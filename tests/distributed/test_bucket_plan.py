from __future__ import annotations

import json
from pathlib import Path

import pytest

from daceml.distributed.bucket_plan import PLAN_FORMAT, PLAN_VERSION, planned_buckets
from daceml.errors import BucketPlanError
from tests.support.golden import golden, raises

PARAMETERS = {"a.weight": (400, "float32"), "a.bias": (40, "float32"), "b.weight": (200, "float16")}
BUCKETS = [["b.weight"], ["a.bias", "a.weight"]]


def test_names_in_the_order_of_sending():
    assert planned_buckets(BUCKETS, PARAMETERS) == (("b.weight",), ("a.bias", "a.weight"))


def test_a_plan_file_says_the_same(tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"format": PLAN_FORMAT, "version": PLAN_VERSION, "buckets": BUCKETS}))
    assert planned_buckets(file, PARAMETERS) == planned_buckets(str(file), PARAMETERS)
    assert planned_buckets(file, PARAMETERS) == planned_buckets(BUCKETS, PARAMETERS)


def test_a_name_that_the_model_does_not_train():
    with raises(BucketPlanError, "bucket 0", "'c.weight'", *PARAMETERS, "named_parameters()"):
        planned_buckets([["a.weight", "c.weight"]], PARAMETERS)


@pytest.mark.parametrize(
    ("buckets", "facts"),
    [
        ([["a.weight"], []], ["bucket 1"]),
        ([["a.weight"], ["a.weight"]], ["'a.weight'", "bucket 0", "bucket 1"]),
        ([["b.weight", "a.weight"], ["a.bias"]], ["bucket 0", "float16", "float32"]),
        ([["a.weight"]], ["'a.bias'", 1, "requires_grad=False"]),
        ([["a.weight", "a.bias"]], ["'b.weight'", "requires_grad=False"]),
    ],
    ids=["empty", "twice", "mixed types", "two absent", "one absent"],
)
def test_buckets_that_cannot_be(buckets: list[list[str]], facts: list[object]):
    with raises(BucketPlanError, *facts):
        planned_buckets(buckets, PARAMETERS)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("[]", []),
        ('{"buckets": []}', ["'daceml.buckets'", PLAN_VERSION]),
        ('{"format": "daceml.buckets", "version": 1, "buckets": [1]}', ["'buckets'"]),
    ],
    ids=["list", "format", "names"],
)
def test_files_that_are_no_plan(tmp_path: Path, text: str, facts: list[object]):
    file = tmp_path / "plan.json"
    file.write_text(text)
    with raises(BucketPlanError, file, *facts):
        planned_buckets(file, PARAMETERS)


@pytest.mark.parametrize(("text", "reason"), [(None, "No such file or directory"), ("{", "line 1")])
def test_files_that_cannot_be_read(tmp_path: Path, text: str | None, reason: str):
    """The reason is the one that the system, or Python, gives."""
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)
    with raises(BucketPlanError, file, reason, exact=False) as caught:
        planned_buckets(file, PARAMETERS)
    assert caught.value.what == golden() and caught.value.fix == golden()

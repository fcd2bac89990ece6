from __future__ import annotations

import json
from pathlib import Path

import pytest

from daceml.errors import BucketPlanError
from daceml.frontend.data_parallel.bucket_plan import PLAN_FORMAT, PLAN_VERSION, planned_buckets

PARAMETERS = {"a.weight": (400, "float32"), "a.bias": (40, "float32"), "b.weight": (200, "float16")}
BUCKETS = [["b.weight"], ["a.bias", "a.weight"]]


def refusal(given: object) -> BucketPlanError:
    with pytest.raises(BucketPlanError) as raised:
        planned_buckets(given, PARAMETERS)  # pyright: ignore[reportArgumentType]
    return raised.value


def test_names_in_the_order_of_sending():
    assert planned_buckets(BUCKETS, PARAMETERS) == (("b.weight",), ("a.bias", "a.weight"))


def test_a_plan_file_says_the_same(tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"format": PLAN_FORMAT, "version": PLAN_VERSION, "buckets": BUCKETS}))
    assert planned_buckets(file, PARAMETERS) == planned_buckets(str(file), PARAMETERS)
    assert planned_buckets(file, PARAMETERS) == planned_buckets(BUCKETS, PARAMETERS)


def test_a_name_that_the_model_does_not_train():
    assert str(refusal([["a.weight", "c.weight"]])) == (
        "[DML663] bucket 0 has 'c.weight', which the model does not train\n"
        "  why:   it trains a.weight, a.bias, b.weight, ...\n"
        "  fix:   use the plan of a run of this model; names are those of named_parameters()"
    )


@pytest.mark.parametrize(
    ("buckets", "what"),
    [
        ([["a.weight"], []], "bucket 1 is empty"),
        ([["a.weight"], ["a.weight"]], "'a.weight' is in bucket 0 and in bucket 1"),
        ([["b.weight", "a.weight"], ["a.bias"]], "bucket 0 has gradients of float16 and float32"),
        ([["a.weight"]], "'a.bias' is in no bucket, nor are 1 more"),
        ([["a.weight", "a.bias"]], "'b.weight' is in no bucket"),
    ],
)
def test_buckets_that_cannot_be(buckets: list[list[str]], what: str):
    assert refusal(buckets).what == what


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("{", "Expecting property name"),
        ("[]", "it holds no object"),
        ('{"buckets": []}', "it is not of format 'daceml.buckets', version 1"),
        ('{"format": "daceml.buckets", "version": 1, "buckets": [1]}', "its 'buckets' are no list of lists"),
    ],
)
def test_files_that_are_no_plan(tmp_path: Path, text: str | None, why: str):
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)
    error = refusal(file)
    assert (error.what, error.where) == ("a plan of buckets cannot be read", str(file))
    assert error.why.startswith(why)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from daceml.errors import SamplingPlanError
from daceml.operations.measuring.calls import filled
from daceml.operations.measuring.operands import draw
from daceml.operations.measuring.sampling_plan import read_plan, sampled
from tests.support.golden import raises

ADDMM: dict[str, Any] = {
    "operator": "aten::addmm",
    "samples": 20,
    "sizes": {"m": [1, 1024], "k": [1, 64], "n": [3, 3]},
    "operands": [["n"], ["m", "k"], ["k", "n"]],
}
CONVOLUTION = """
seed = 4
[[operation]]
operator = "aten::convolution"
samples = 4
spread = "log"
sizes = { b = [1, 4], c = [1, 8], o = [1, 8], s = [7, 20] }
choices = { stride = [1, 2], window = [1, 3] }
operands = [["b", "c", "s", "s"], ["o", "c", "window", "window"], ["o"]]
directions = ["forward", "backward"]
[operation.attributes]
stride = ["stride", "stride"]
padding = [1, 1]
dilation = [1, 1]
transposed = false
output_padding = [0, 0]
groups = 1
[[operation]]
operator = "aten::embedding"
samples = 1
sizes = { rows = [10, 20] }
operands = [["rows", 4], { shape = [7], dtype = "int64", low = 0, high = 9 }]
[[operation]]
operator = "aten::_to_copy"
samples = 1
operands = [[3]]
attributes = { dtype = "float16" }
[[operation]]
operator = "aten::cat"
samples = 1
operands = [[3], [4]]
"""


def test_sizes_lie_in_their_ranges_and_names_stand_for_one_value():
    jobs = list(sampled({"operation": [ADDMM]}))
    assert len(jobs) == 20
    for job in jobs:
        bias, left, right = (one.shape for one in job.call.tensors)
        assert bias == (3,) and left[1] == right[0] <= 64 and 1 <= left[0] <= 1024
    assert len({job.call.tensors[1].shape for job in jobs}) > 15


def test_a_seed_gives_the_same_samples_and_a_further_operation_changes_none():
    once = list(sampled({"seed": 3, "operation": [ADDMM]}))
    assert once == list(sampled({"seed": 3, "operation": [ADDMM]}))
    assert once != list(sampled({"seed": 4, "operation": [ADDMM]}))
    relu = {"operator": "aten::relu", "samples": 1, "operands": [[4]]}
    assert list(sampled({"seed": 3, "operation": [ADDMM, relu]}))[:20] == once


def test_every_sample_of_a_file_can_be_called(tmp_path: Path):
    file = tmp_path / "plan.toml"
    file.write_text(CONVOLUTION)
    jobs = read_plan(file)
    assert [job.direction for job in jobs[:4]] == ["forward", "backward"] * 2
    assert len(jobs) == 11
    for job in jobs:
        ((*tensors,),) = draw(job.call.tensors)
        rest = iter(tensors)
        args = [filled(one, rest, "cpu") for one in job.call.args]
        kwargs = {name: filled(one, rest, "cpu") for name, one in job.call.kwargs}
        assert isinstance(job.call.function()(*args, **kwargs), torch.Tensor)


def test_logarithmic_sizes_are_as_often_small_as_large():
    plan = {**ADDMM, "spread": "log", "samples": 200}
    small = sum(job.call.tensors[1].shape[0] <= 32 for job in sampled({"operation": [plan]}))
    assert 70 <= small <= 130


def test_a_plan_is_json_as_well(tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"operation": [ADDMM]}))
    assert list(read_plan(file)) == list(sampled({"operation": [ADDMM]}))


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"operator": 3}, ["`operator`", "aten::mm"]),
        ({"sizes": {"m": [0, 4]}}, ["size m", "[0, 4]"]),
        ({"sizes": {"m": [8, 4]}}, ["size m", "[8, 4]"]),
        ({"sizes": [1]}, ["`sizes`", "[1]"]),
        ({"choices": {"m": []}}, ["choice m", "[]"]),
        ({"operands": [["n"], ["m", "k"]]}, ["mat2", "`operands`"]),
        ({"operands": [["n"], ["m", "q"], ["k", "n"]]}, ["['m', 'q']", "`sizes`"]),
        ({"operands": 3}, ["`operands`", '[["m", "k"]]']),
        ({"dtypes": ["float31"]}, ["'float31'", "dtype", "bfloat16"]),
        ({"directions": ["sideways"]}, ["`directions`", "['sideways']", "forward"]),
        ({"spread": "wide"}, ["`spread`", "['wide']", "uniform, log"]),
    ],
)
def test_what_cannot_be_sampled_says_why(change: dict[str, Any], facts: list[str]):
    with raises(SamplingPlanError, "operation 1 (", *facts) as refusal:
        list(sampled({"operation": [{**ADDMM, **change}]}))
    assert refusal.value.fix


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"operator": "aten::admm"}, ["aten::admm", f"torch {torch.__version__}"]),
        ({"operands": [["n"], ["m", "k"], ["k", "n"], ["n"]]}, ["fewer operands", "aten::addmm(Tensor self"]),
        ({"attributes": {"bata": 1}}, ["bata", "aten::addmm(Tensor self"]),
    ],
)
def test_what_torch_does_not_know_is_told_with_its_words(change: dict[str, Any], facts: list[str]):
    with raises(SamplingPlanError, "operation 1 (", *facts, exact=False) as refusal:
        list(sampled({"operation": [{**ADDMM, **change}]}))
    assert refusal.value.fix


def test_an_operator_with_several_overloads_names_them():
    with raises(SamplingPlanError, "aten::softmax.int", f"torch {torch.__version__}", exact=False):
        list(sampled({"operation": [{"operator": "aten::softmax", "operands": [[3]]}]}))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("operation = 3", ["`operation`", "[[operation]]"]),
        ("[[operation", ["TOML", "JSON"]),
        ("sead = 1\noperation = []", ["sead", "seed"]),
        ("samples = -1\noperation = []", ["`samples`", "-1"]),
        ("operation = [3]", ["operation 1", "[[operation]]"]),
        ("[[operation]]\noperator = 'aten::relu'\nsize = 3", ["operation 1 (aten::relu)", "size;", "sizes"]),
    ],
)
def test_a_file_that_is_no_plan(text: str, facts: list[str], tmp_path: Path):
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with raises(SamplingPlanError, file, *facts, exact="TOML" not in facts):  # Python says what TOML is not
        read_plan(file)


def test_a_file_that_is_not_there(tmp_path: Path):
    file = tmp_path / "plan.toml"
    with raises(SamplingPlanError, file, "No such file", exact=False):  # the system says why
        read_plan(file)

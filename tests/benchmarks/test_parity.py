"""The parity benchmark with compilers that are right, slightly wrong, and wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import parity
from benchmarks.models import MODELS


def exact(module: nn.Module) -> Callable[..., Any]:
    return module


def off_by(relative: float) -> Callable[[nn.Module], Callable[..., Any]]:
    """A compiler whose results are too large by `relative`."""

    def compile_module(module: nn.Module) -> Callable[..., Any]:
        return lambda *inputs: module(*inputs) * (1 + relative)

    return compile_module


def no_fallback(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    return 0


def test_eager_itself_is_on_par():
    seen = parity.inference(MODELS["mish"], exact, no_fallback, seeds=(0, 1))
    assert seen.accuracy.passed
    assert seen.accuracy.median_over_eager == 1.0
    assert [tensor.name for tensor in seen.accuracy.tensors] == ["seed0.output", "seed1.output"]
    assert all(bar.met for bar in seen.bars())


def test_a_wrong_result_misses_two_bars():
    seen = parity.inference(MODELS["mish"], off_by(1e-4), no_fallback, seeds=(0,))
    assert not seen.accuracy.passed
    assert [bar.met for bar in seen.bars()] == [False, False, True]
    assert "seed0.output 1.00e-04 >" in seen.bars()[0].note


def test_a_node_left_to_onnxruntime_misses_a_bar():
    seen = parity.inference(MODELS["mish"], exact, lambda module, inputs: 1, seeds=(0,))
    assert [bar.met for bar in seen.bars()] == [True, True, False]


def test_the_program_exits_with_1_on_a_miss_and_writes_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "new" / "parity.json"
    line = ["--models", "mish", "--quick", "--check", "--json", str(file)]
    assert parity.main(line, compile_module=exact, count_onnxruntime=no_fallback) == 0
    assert "3 of 3 bars met" in capsys.readouterr().out
    assert parity.main(line, compile_module=off_by(1e-4), count_onnxruntime=no_fallback) == 1
    assert "MISSED mish: tensors outside the error limit: 1" in capsys.readouterr().out
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["benchmark"] == "parity"
    assert written["rows"][0]["model"] == "mish"
    assert written["bars"][0]["met"] is False
    assert written["arguments"] == {"mode": "inference", "models": "mish", "quick": True}


def test_without_check_a_miss_is_only_shown():
    line = ["--models", "mish", "--quick"]
    assert parity.main(line, compile_module=off_by(1e-4), count_onnxruntime=no_fallback) == 0


def test_an_unknown_model_is_refused_with_those_that_are_known(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parity.main(["--models", "mish,lenet"])
    assert "no such model: lenet; there are mish, mbconv, resnet50, bert" in capsys.readouterr().err


def test_outputs_are_named_by_where_they_stand():
    one, two = torch.zeros(1), torch.ones(1)
    assert list(parity.named_outputs({"a": one, "b": (one, [two])}, 3)) == [
        "seed3.output.a",
        "seed3.output.b.0",
        "seed3.output.b.1.0",
    ]

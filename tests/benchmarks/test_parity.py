"""The parity benchmark's program, with compilers that are right, slightly wrong, and broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import parity
from benchmarks.models.further import FURTHER
from benchmarks.models.mish import Mish
from daceml.errors import CallError
from tests.support.golden import golden


def exact(module: nn.Module) -> Callable[..., Any]:
    return module


def off_by(relative: float) -> Callable[[nn.Module], Callable[..., Any]]:
    """A compiler whose results are too large by `relative`."""

    def compile_module(module: nn.Module) -> Callable[..., Any]:
        return lambda *inputs: module(*inputs) * (1 + relative)

    return compile_module


def no_fallback(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> int:
    return 0


def broken(module: nn.Module) -> Callable[..., Any]:
    def call(*inputs: torch.Tensor) -> torch.Tensor:
        raise CallError("this cannot run", why="it is broken", fix="buy another")

    return call


@pytest.mark.slow
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
    assert written["arguments"] == {
        "dynamic": False,
        "mode": "inference",
        "further": False,
        "models": "mish",
        "quick": True,
    }


def test_without_check_a_miss_is_only_shown():
    line = ["--models", "mish", "--quick"]
    assert parity.main(line, compile_module=off_by(1e-4), count_onnxruntime=no_fallback) == 0


def test_an_unknown_model_is_refused_with_those_that_are_known(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parity.main(["--models", "mish,lenet"])
    said = capsys.readouterr().err.partition("error: ")[2]
    assert said == golden()
    assert "lenet" in said and "mish, mbconv, resnet50," in said


def test_open_batches_belong_to_inference(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parity.main(["--mode", "export", "--dynamic"])
    said = capsys.readouterr().err.partition("error: ")[2]
    assert said == golden()
    assert "--dynamic" in said and "--mode inference" in said


@pytest.mark.slow
def test_a_network_that_fails_is_a_missed_bar_and_the_others_run(capsys: pytest.CaptureFixture[str]):
    def compile_module(module: nn.Module) -> Callable[..., Any]:
        return broken(module) if isinstance(module, Mish) else module

    line = ["--models", "mish,mbconv", "--quick", "--check"]
    assert parity.main(line, compile_module=compile_module, count_onnxruntime=no_fallback) == 1
    said = capsys.readouterr().out
    assert "s  failed: CallError: [DML203] this cannot run why: it is broken" in said
    assert "MISSED mish: failures: 1, at most 0 (CallError: [DML203] this cannot run" in said
    assert "buy another" not in said
    assert "met    mbconv: tensors outside the error limit: 0" in said
    assert "3 of 4 bars met" in said


@pytest.mark.slow
def test_a_dynamic_run_shows_both_cases_of_a_network(capsys: pytest.CaptureFixture[str]):
    code = parity.main(
        ["--models", "mish", "--quick", "--dynamic", "--check"],
        compile_module=exact,
        count_onnxruntime=no_fallback,
        compile_dynamic=lambda module, dynamic_shapes: module,
        count_variants=lambda compiled, calls: 2,
    )
    said = capsys.readouterr().out
    assert code == 1
    assert "MISSED mish, open batch: variants compiled: 2, at most 1" in said
    assert "6 of 7 bars met" in said


def test_mode_export_checks_onnx_models(capsys: pytest.CaptureFixture[str]):
    assert parity.main(["--models", "mbconv", "--mode", "export", "--check"]) == 0
    said = capsys.readouterr().out
    assert "valid, " in said
    assert "6 changed buffers, 0 missing" in said
    assert "2 of 2 bars met" in said


def test_further_networks_are_asked_for_by_one_word():
    assert parity.parse(["--further"]).models.split(",") == list(FURTHER)
    assert set(parity.parse([]).models.split(",")).isdisjoint(FURTHER)
    assert parity.parse(["--models", "swin,mish"]).models == "swin,mish"

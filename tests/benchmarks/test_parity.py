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
from benchmarks.models.reduced import REDUCED
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


def written_to(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_program_exits_with_1_on_a_miss_and_writes_its_file(tmp_path: Path):
    file = tmp_path / "new" / "parity.json"
    line = ["--models", "mish", "--quick", "--check", "--json", str(file)]
    assert parity.main(line, compile_module=exact, count_onnxruntime=no_fallback) == 0
    assert [bar["met"] for bar in written_to(file)["bars"]] == [True] * 3
    assert parity.main(line, compile_module=off_by(1e-4), count_onnxruntime=no_fallback) == 1
    written = written_to(file)
    assert written["benchmark"] == "parity"
    assert written["rows"][0]["model"] == "mish"
    outside = written["bars"][0]
    assert "mish" in outside["name"] and (outside["figure"], outside["met"]) == (1, False)
    assert written["arguments"] == {
        "dynamic": False,
        "mode": "inference",
        "further": False,
        "models": "mish",
        "quick": True,
    }


def test_without_check_a_miss_is_only_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(parity.NETWORKS, "mish", REDUCED["mish"])
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
def test_a_network_that_fails_is_a_missed_bar_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def compile_module(module: nn.Module) -> Callable[..., Any]:
        return broken(module) if isinstance(module, Mish) else module

    file = tmp_path / "parity.json"
    line = ["--models", "mish,mbconv", "--quick", "--check", "--json", str(file)]
    assert parity.main(line, compile_module=compile_module, count_onnxruntime=no_fallback) == 1
    assert "buy another" not in capsys.readouterr().out
    mish, *others = written_to(file)["bars"]
    assert "mish" in mish["name"] and (mish["figure"], mish["met"]) == (1, False)
    assert "[DML203]" in mish["note"] and "it is broken" in mish["note"]
    assert [("mbconv" in bar["name"], bar["met"]) for bar in others] == [(True, True)] * 3


@pytest.mark.slow
def test_a_dynamic_run_shows_both_cases_of_a_network(tmp_path: Path):
    file = tmp_path / "parity.json"
    code = parity.main(
        ["--models", "mish", "--quick", "--dynamic", "--check", "--json", str(file)],
        compile_module=exact,
        count_onnxruntime=no_fallback,
        compile_dynamic=lambda module, dynamic_shapes: module,
        count_variants=lambda compiled, calls: 2,
    )
    assert code == 1
    bars = written_to(file)["bars"]
    (missed,) = (bar for bar in bars if not bar["met"])
    assert "mish, open batch" in missed["name"] and (missed["figure"], missed["limit"]) == (2, 1)
    assert len(bars) == 7


@pytest.mark.slow
def test_mode_export_checks_onnx_models(tmp_path: Path):
    file = tmp_path / "parity.json"
    assert parity.main(["--models", "mbconv", "--mode", "export", "--check", "--json", str(file)]) == 0
    written = written_to(file)
    (row,) = written["rows"]
    assert (row["refusal"], row["changed_buffers"], row["missing_buffers"]) == ("", 6, [])
    assert [bar["figure"] for bar in written["bars"]] == [0, 0]


def test_further_networks_are_asked_for_by_one_word():
    assert parity.parse(["--further"]).models.split(",") == list(FURTHER)
    assert set(parity.parse([]).models.split(",")).isdisjoint(FURTHER)
    assert parity.parse(["--models", "swin,mish"]).models == "swin,mish"

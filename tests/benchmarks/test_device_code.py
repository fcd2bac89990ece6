"""Device code through nvcc: what counts, and what a machine without nvcc is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import device_code
from benchmarks.device_code import (
    LAUNCHES,
    Case,
    GeneratedKernel,
    Launches,
    bars_of,
    cases,
    compiled,
    generated,
    launch_bars,
    main,
    rows_of,
)
from benchmarks.models import MODELS
from benchmarks.models.spec import ModelSpec
from daceml.codegen_cuda.kernel_unit import KernelLaunch, KernelUnit
from daceml.codegen_cuda.toolchain import CudaToolchain, find_nvcc

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3


def inputs(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None):
    return (torch.randn(5, 300, generator=generator).to(dtype),)


SPEC = ModelSpec(name="scaled", build=Scaled, inputs=inputs, depth=2, source=__name__)
CASE = Case(name="scaled", spec=SPEC, architectures=(80, 90), is_block=True)


def tools() -> CudaToolchain:
    return CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=90)


def test_both_passes_are_compiled_for_each_architecture():
    kernels, launches = generated(SPEC)
    assert launches == dict.fromkeys(("forward", "backward"), Launches(kernels=1, contractions=0, others=0))
    assert [kernel.part for kernel in kernels] == ["forward", "backward"]
    assert {case.architectures for case in cases(quick=True)} == {(80, 90, 100)}
    full = {case.name: case.architectures for case in cases(quick=False)}
    assert all(full[name] == (90,) for name in MODELS)


@needs_nvcc
def test_a_row_has_what_the_assembler_says_of_a_kernel():
    rows = rows_of(CASE, tools())
    assert [(row["part"], row["architecture"]) for row in rows] == [
        (part, architecture) for architecture in (80, 90) for part in ("forward", "backward")
    ]
    # 1,500 elements, 4 to a thread
    assert {(*row["grid"], *row["block"]) for row in rows} == {("2", "1", "1", "256", "1", "1")}
    assert all(row["registers"] > 0 and row["spill_bytes"] == 0 and row["occupancy"] > 0.5 for row in rows)
    assert all(bar.met for bar in bars_of(CASE, rows))


@needs_nvcc
def test_of_several_kernels_the_one_that_is_refused_is_named(tmp_path: Path):
    launched = KernelLaunch(function="faulty", grid=(1, 1, 1), block=(32, 1, 1))
    faulty = KernelUnit(
        text="__global__ void faulty() { undeclared(); }\n", launch="", parameters=(), launched=launched
    )
    seen = compiled([generated(SPEC)[0][0], GeneratedKernel(part="forward", unit=faulty)], tools(), tmp_path)
    assert [isinstance(facts, str) for _, facts, _ in seen] == [False, True]
    rows = [device_code.row(CASE, kernel, 90, facts) for kernel, facts, _ in seen]
    _, _, refused, spilled = bars_of(CASE, rows)
    assert (refused.figure, refused.met, spilled.met) == (1, False, True)
    assert refused.note.startswith("faulty: ") and "undeclared" in refused.note


def test_without_a_compiler_every_bar_is_missed_and_only_check_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(device_code, "_tools", lambda: (None, "there is no CUDA compiler"))
    assert main(["--quick"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("not compiled: there is no CUDA compiler\n")
    assert "MISSED block mish, sm_90: kernels that do not compile: not measured" in said
    assert said.endswith("\n0 of 48 bars met\n")
    assert main(["--quick", "--check"]) == 1


def test_what_was_compiled_and_is_wrong_fails_without_check(monkeypatch: pytest.MonkeyPatch):
    refused = {"architecture": 90, "kernel": "tanh", "failure": "no such function", "seconds": 0.1}
    monkeypatch.setattr(device_code, "_tools", lambda: (tools(), ""))
    monkeypatch.setattr(device_code, "_outcome", lambda case, _: ([refused], ""))
    assert main(["--only", "mish"]) == 1


def test_a_run_goes_on_from_its_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    begun: list[str] = []

    def outcome(case: Case, _: CudaToolchain):
        begun.append(case.name)
        facts: dict[str, object] = {"registers": 8, "spill_bytes": 0, "seconds": 0.1, "part": "forward"}
        facts["launches"] = {"kernels": 7, "contractions": 8, "others": 3}
        return [{"architecture": one, "kernel": case.name, **facts} for one in case.architectures], ""

    monkeypatch.setattr(device_code, "_tools", lambda: (tools(), ""))
    monkeypatch.setattr(device_code, "_outcome", outcome)
    journal = ["--journal", str(tmp_path / "rows.jsonl"), "--check"]
    assert main(["--only", "mish", *journal]) == 0
    assert main(["--only", "mish", "--only", "bert", "--budget-s", "0", *journal]) == 1
    assert main(["--only", "mish", "--only", "bert", *journal]) == 0
    assert begun == ["mish", "bert"]


def test_launches_besides_contractions_are_counted_beside_the_paper():
    rows = [
        {"part": part, "launches": launches}
        for part, launches in (
            ("forward", {"kernels": 1, "contractions": 0, "others": 0}),
            ("backward", {"kernels": 2, "contractions": 5, "others": 1}),
        )
    ]
    case = Case(name="block layer_norm", spec=SPEC, architectures=(90,), is_block=True)
    forward, backward = launch_bars(case, rows)
    assert (forward.figure, forward.met, backward.figure, backward.met) == (1, True, 3, False)
    assert forward.note == "and 0 contractions; no number in the paper's text"
    assert backward.note.startswith("and 5 contractions; ")
    counted_before = [{"part": "forward", "architecture": 90}]
    assert [bar.figure for bar in launch_bars(case, counted_before)] == [None, None]
    assert {name for name, _ in LAUNCHES} <= {case.name for case in cases(quick=False)}

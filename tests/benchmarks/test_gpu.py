"""The GPU suite without a GPU: shards in emulation, its driver with idle workers, and its script."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from benchmarks.blocks.definitions import BLOCKS
from benchmarks.gpu import __main__ as suite
from benchmarks.gpu import correctness
from benchmarks.gpu.case import Case
from benchmarks.gpu.cases import BATCHES, MODES, NETWORKS, SHARDS, cases_of
from benchmarks.gpu.doctor import check
from benchmarks.gpu.environment import folder_name
from benchmarks.gpu.guided import FUSED_PART, compiled_guided
from benchmarks.gpu.measures import MEASURES, measure
from benchmarks.gpu.subject import BLOCK_BYTES, elements_of, large_batch, subject_of
from benchmarks.gpu.target import Target, steps_of
from benchmarks.gpu.without_draws import without_draws
from benchmarks.gpu.worker import Row
from benchmarks.machine import ROOT
from benchmarks.models import MODELS
from benchmarks.models.named import spec_named
from tests.support.golden import golden

SCRIPT = ROOT / "benchmarks" / "gpu.sh"


class FakeWorker:
    """Finds everything right, but for the cases that it is told to fail."""

    def __init__(self, failing: tuple[str, ...] = (), late: tuple[str, ...] = ()) -> None:
        self.failing, self.late = failing, late
        self.asked: list[str] = []

    def __call__(self, case: Case, limit_s: float) -> Row:
        self.asked.append(case.label)
        if case.name in self.late:
            return {"failure": f"took longer than {limit_s:.0f} s", "late": True}
        if case.name in self.failing:
            return {"failure": "exit code -11"}
        worst = {"name": "call.output", "error": 1e-7, "eager_error": 1e-7, "limit": 4e-7}
        return {"outside": [], "worst": worst, "tensors": 1}


def run(tmp_path: Path, worker: FakeWorker, *words: str) -> int:
    line = ["--shard", "correctness-A", "--emulated", "--check", "--journal", str(tmp_path / "journal.jsonl")]
    return suite.main([*line, "--json", str(tmp_path / "out" / "correctness-A.json"), *words], worker=worker)


def test_every_network_is_in_one_group_and_has_a_batch():
    grouped = [name for names in NETWORKS.values() for name in names]
    assert sorted(grouped) == sorted(MODELS) == sorted(BATCHES)


@pytest.mark.parametrize("shard", SHARDS)
def test_cases_of_a_shard_differ_and_can_be_measured(shard: str):
    cases = cases_of(shard)
    assert cases and len({case.key for case in cases}) == len(cases)
    assert {case.kind for case in cases} <= MEASURES.keys()


def test_networks_are_compared_in_every_precision_and_mode():
    seen = Counter(case.precision for case in cases_of("correctness-C"))
    assert seen == {"fp32": 8, "tf32": 8, "bf16": 8, "fp16": 8, "autocast": 2}
    assert {case.mode for case in cases_of("correctness-B")} == set(MODES)


@pytest.mark.slow
def test_a_shard_in_emulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "correctness-A.json"
    line = ["--shard", "correctness-A", "--emulated", "--only", "mish", "--check", "--json", str(file)]
    assert suite.main([*line, "--journal", str(tmp_path / "journal.jsonl")]) == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    assert [bar["met"] for bar in document["bars"]] == [True] * 8
    assert document["left"] == [] and document["device"]["torch"]
    steps = {row["case"]: row["steps"] for row in document["rows"]}
    assert steps["mish, training, bf16"] == {"forward": {"kernel": 1}, "backward": {"kernel": 1}}
    assert suite.main(["table", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert any("bf16" in line and "sqrt(depth)" in line for line in shown.splitlines())
    assert "OUTSIDE" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), [("mbconv", "bf16"), ("bert_autocast", "autocast")])
def test_a_network_trains_in_emulation(name: str, precision: str):
    row = measure(Case(kind="correctness", name=name, mode="training", precision=precision, emulated=True))
    assert row["outside"] == []
    assert row["steps"]["backward"]["kernel"] > 0


def test_a_block_is_right_and_is_timed_in_emulation():
    row = measure(Case(kind="block", name="mish", mode="inference", emulated=True))
    assert row["outside"] == [] and row["large_tensors"] == 2
    assert row["replays"]["names"] == ["eager", "daceml", "copy"]


@pytest.mark.parametrize("name", ["environment", "training", "draws", "graphs"])
def test_checks_find_nothing_in_emulation(name: str):
    assert check(Case(kind="check", name=name, precision="", emulated=True))["outside"] == []


def test_a_guided_convolution_is_one_kernel_with_what_follows_it():
    target = Target(emulated=True)
    module = FUSED_PART.module()
    compiled, x = compiled_guided(module, target), torch.randn(1, 32, 9, 11)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)
        assert "aten" not in steps_of(compiled, (x,))["forward"]


def test_a_wrong_gradient_is_outside(monkeypatch: pytest.MonkeyPatch):
    class Wrong(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = x * torch.tanh(nn.functional.softplus(x))
            return kept + 0.2 * (x - x.detach())  # the same value, another derivative

    compile_right = Target.compile

    def compile_wrong(self: Target, module: nn.Module, **options: Any) -> nn.Module:
        return compile_right(self, Wrong(), **options)

    monkeypatch.setattr(Target, "compile", compile_wrong)
    for precision in ("fp32", "bf16"):
        case = Case(kind="correctness", name="mish", mode="training", precision=precision, emulated=True)
        found = correctness.correctness(case)["outside"]
        assert found and found[0].startswith("seed0.input0.grad: error")


def test_a_program_without_kernels_is_no_success():
    accuracy = correctness.Accuracy(tensors=())
    assert correctness.outside(accuracy, {"forward": {"aten": 3}}) == ["no kernel was generated"]
    assert correctness.outside(accuracy, {"forward": {"kernel": 1, "onnxruntime": 2}}) == [
        "2 nodes left to onnxruntime"
    ]


@pytest.mark.parametrize("name", ["reduced:bert", "reduced:efficientnet_b0", "reduced:fcn8s"])
def test_without_draws_two_seeds_give_one_result(name: str):
    spec = spec_named(name)
    x = spec.example()

    def results(module: nn.Module) -> list[torch.Tensor]:
        found = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            found.append(module(*x))
        return found

    assert not torch.equal(*results(spec.module().train()))
    assert torch.equal(*results(without_draws(spec.module().train())))


def test_blocks_exceed_caches():
    for name, found in BLOCKS.items():
        batch = large_batch(found)
        assert 4 * elements_of(found, batch) >= BLOCK_BYTES, name
        assert 4 * elements_of(found, batch - 1) < BLOCK_BYTES, name


@pytest.mark.parametrize("emulated", [False, True])
def test_a_case_runs_in_the_size_that_it_is_measured_in(emulated: bool):
    block = Case(kind="values", name="mish", mode="inference", emulated=emulated)
    (x,) = subject_of(block).spec.example()
    assert x.numel() == (4 * 1024 if emulated else BLOCK_BYTES // 4)
    (x,) = subject_of(replace(block, kind="times", name="bert")).spec.example()
    assert x.shape[0] == (2 if emulated else BATCHES["bert"])


def test_a_stopped_shard_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    late = FakeWorker(late=("mobilenetv2",))
    assert run(tmp_path, late, "--budget", "200") == suite.UNFINISHED
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == golden()
    assert "16 of 32" in said
    assert late.asked[-1] == "mobilenetv2, inference, fp32" and len(late.asked) == 17
    document = json.loads((tmp_path / "out" / "correctness-A.json").read_text(encoding="utf-8"))
    assert len(document["left"]) == 16 and not all(bar["met"] for bar in document["bars"])
    again = FakeWorker()
    assert run(tmp_path, again) == 0
    assert len(again.asked) == 16, "what was measured is believed"


def test_kernels_of_a_folder_are_the_cache_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_CACHE", "another")  # put back afterwards
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    assert run(tmp_path, FakeWorker(), "--only", "mish", "--kernels", str(kernels)) == 0
    assert os.environ["DACEML_CACHE"] == str(kernels)
    document = json.loads((tmp_path / "out" / "correctness-A.json").read_text(encoding="utf-8"))
    assert document["arguments"]["kernels"] == "given", "no path of one machine"


def test_a_case_that_never_ends_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(tmp_path, FakeWorker(late=("mish",)), "--only", "mish") == 1
    assert re.search("mish, inference, fp32: .* 450 s", capsys.readouterr().out)


def test_failures_are_kept_until_they_are_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(tmp_path, FakeWorker(failing=("mish",)), "--only", "mish") == 1
    said = capsys.readouterr().out
    assert any("mish, training, fp16" in line and "not measured" in line for line in said.splitlines())
    patient, trying = FakeWorker(), FakeWorker()
    assert run(tmp_path, patient, "--only", "mish") == 1 and patient.asked == []
    assert run(tmp_path, trying, "--only", "mish", "--retry") == 0 and len(trying.asked) == 8


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--only", "resnet50"], ["correctness-A", "resnet50", "mish, mbconv"]),
        (["--kernels", "/no/such/folder"], ["/no/such/folder", "daceml compile --device-kernels"]),
        (["--budget", "0"], ["--budget is 0"]),
    ],
)
def test_bad_arguments_say_what_to_give(
    tmp_path: Path, words: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
):
    try:
        code = run(tmp_path, FakeWorker(), *words)
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err.rpartition("error: ")[2]
    assert (code, said) == (2, golden())
    assert all(fact in said for fact in facts)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_measured(capsys: pytest.CaptureFixture[str]):
    assert suite.main(["--shard", "doctor"], worker=FakeWorker()) == 2
    said = capsys.readouterr().err
    assert said == golden()
    assert "CUDA" in said and "--emulated" in said


def test_a_whole_shard_of_a_device_is_kept_with_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    device = {"gpu": "A Device 80GB", "driver": "580.1", "torch": "2.11"}
    monkeypatch.setattr(suite.machine, "ROOT", tmp_path)
    monkeypatch.setattr(suite.environment, "description", lambda: device)
    worker = FakeWorker()
    results = tmp_path / "benchmarks" / "results" / "a-device-80gb"
    assert suite.main(["--shard", "correctness-B", "--only", "yolov4", "--check"], worker=worker) == 0
    assert not results.exists(), "a part of a shard is written where it is asked for"
    assert suite.main(["--shard", "correctness-B", "--check"], worker=worker) == 0
    assert len(worker.asked) == 32, "each case once"
    document = json.loads((results / "correctness-B.json").read_text(encoding="utf-8"))
    assert document["device"] == device and len(document["rows"]) == 32
    first = (results / "table.txt").read_text(encoding="utf-8").splitlines()[0]
    assert "A Device 80GB" in first and "580.1" in first


@pytest.mark.parametrize(("code", "seen"), [(0, 0), (1, 1), (124, 3)])
def test_the_script_says_when_to_run_it_again(tmp_path: Path, code: int, seen: int):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@"\nexit {code}\n', encoding="ascii")
    python.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(python), "GPU_LIMIT_S": "100"}
    done = subprocess.run(
        ["bash", str(SCRIPT), "--shard", "doctor"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (seen, golden())
    assert done.stdout.strip() == "-m benchmarks.gpu --budget 70 --shard doctor"


def test_the_workflow_runs_every_shard():
    text = (ROOT / ".github" / "workflows" / "gpu.yml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["jobs"]["suite"]["runs-on"] == ["self-hosted", "linux", "gpu"]
    assert f"for shard in {' '.join(SHARDS)}; do" in text


def test_a_folder_is_named_by_its_device():
    assert folder_name("NVIDIA A100-SXM4-40GB") == "nvidia-a100-sxm4-40gb"

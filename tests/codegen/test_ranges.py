"""Ranges around the steps of a program: torch's profiler and tools that read NVTX show them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import daceml
from daceml.codegen.build import build_program
from daceml.codegen.driver import driver_text
from daceml.codegen.planning.plan import make_plan
from daceml.codegen.planning.steps import Copy, Step
from daceml.codegen.ranges import range_line, range_name
from daceml.compiler.keys.program_key import model_key
from daceml.config import config
from daceml.errors import ConfigurationError
from daceml.onnx_ops.external import external_call
from daceml.profiling.recording.kernels import PREFIX as KERNEL
from daceml.sdfg.origin import NodeOrigin
from daceml.toolchain.cache import Cache
from daceml.toolchain.range_names import PREFIX
from tests.codegen.range_models import add
from tests.support.golden import raises
from tests.support.small_networks import elementwise

CODES = ["_out = _a + 1", "_out = _a * 2"]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Sequential(nn.GELU(), nn.Linear(8, 3)))


def seen(run: Callable[[], object]) -> list[tuple[str, str]]:
    """Ranges that torch's profiler shows, in order of their beginnings, each with the operator around it."""
    run()
    # torch 2.11 warns without `acc_events`, even of a single cycle
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        run()
    events = sorted(recorded.events(), key=lambda event: event.time_range.start)
    inner = [event for event in events if event.name.startswith(PREFIX)]
    return [(event.name.removeprefix(PREFIX), event.cpu_parent.name) for event in inner]


def test_torchs_profiler_shows_each_step_by_its_label_and_modules():
    module, x = network(), torch.randn(4, 8)
    on = daceml.compile(module, ranges=True, backward=False)
    steps = seen(lambda: on(x))
    assert {parent for _, parent in steps} == {"daceml::call"}
    labels = [name.partition(" @ ")[0] for name, _ in steps]
    assert labels == [step.label for step in on.session.latest.program.manifest.steps]
    assert "Gemm addmm_out @ 0" in dict(steps)
    (fused,) = (name for name, _ in steps if name.startswith("LayerNormalization_Gelu"))
    assert set(fused.partition(" @ ")[2].split(", ")) == {"1", "2.0"}
    off = daceml.compile(module, backward=False)
    assert seen(lambda: off(x)) == [] and torch.equal(on(x), off(x))


def test_backward_passes_have_ranges():
    module, x = network(), torch.randn(1 << 14, 8)  # what is saved is large enough to be released early
    compiled = daceml.compile(module, ranges=True)
    steps = seen(lambda: compiled(x).square().sum().backward())
    assert {parent for _, parent in steps} == {"daceml::call", "daceml::call_held"}
    assert any(name.startswith("LayerNormalizationGrad") and name.endswith("@ 1") for name, _ in steps)


def test_whole_steps_have_ranges():
    module, x, target = network(), torch.randn(4, 8), torch.randn(4, 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = daceml.compile_step(module, nn.functional.mse_loss, optimizer, ranges=True)
    assert any(name.startswith("Gemm") for name, _ in seen(lambda: step(x, target)))


def test_onnx_models_have_ranges():
    model = add()
    assert [name for name, _ in seen(lambda: model(torch.ones(2), torch.ones(2)))] == ["Add"]
    assert model_key(model.model, {}) != model_key(model.model, {}, ranges=True)


def test_recordings_take_their_steps_from_ranges(tmp_path: Path):
    compiled, x = daceml.compile(network(), ranges=True), torch.randn(64, 8)
    with daceml.profile(compiled, steps=2, warmup=1, unprofiled=0, path=tmp_path / "run.json.gz") as trace:
        for _ in range(4):
            compiled(x).square().sum().backward()
            trace.step()
    events = json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))["traceEvents"]
    ranges, kernels = (
        sorted(
            (event["ts"], event["dur"], event["name"].removeprefix(prefix).partition(" ")[0])
            for event in events
            if event["name"].startswith(prefix) and event["cat"] == "cpu_op"
        )
        for prefix in (PREFIX, KERNEL)
    )
    assert len(ranges) > 0 and ranges == kernels


def test_nothing_of_a_driver_changes_where_nobody_asks():
    plan = make_plan(elementwise(CODES), external_call)
    signatures = {kernel.name: ("a00", "a01") for kernel in plan.kernels}
    off, on = driver_text(plan, signatures), driver_text(plan, signatures, ranges=True)
    added = [line for line in on.splitlines() if "daceml::Range" in line or "ranges.h" in line]
    assert len(added) == 1 + len(plan.steps)
    assert [line for line in on.splitlines() if line not in added] == off.splitlines()


def test_names_say_all_modules_and_are_quoted():
    net = elementwise(CODES)
    net.origins["x1"] = tuple(
        NodeOrigin(operator="Add", onnx_name="n", module_path=path) for path in ("", "b", "a", "b")
    )
    step = Step(action=Copy(source="x0", target="x1"), reads=("x0",), writes=("x1",), label='say "\\n"\n')
    assert range_name(step, net) == PREFIX + 'say "\\n"\n @ b, a'
    assert range_line(step, net) == f'daceml::Range range("{PREFIX}say \\"\\\\n\\"  @ b, a");'


def test_ranges_are_built_without_headers_of_nvtx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("daceml.codegen.build.nvtx_folder", lambda: None)
    plan = make_plan(elementwise(CODES), external_call)
    build_program(plan, Cache(config().cache_folder), tmp_path, ranges=True)
    library = (tmp_path / "program.so").read_bytes()
    assert b"aoti_record_function_start" in library and b"NVTX_INJECTION64_PATH" not in library


def test_an_option_of_another_type_is_refused():
    with raises(ConfigurationError, "'ranges'", "dace_module", "True or False", "'nvtx'"):
        daceml.compile(network(), ranges="nvtx")
    with raises(ConfigurationError, "'ranges'", "ONNXModel", "True or False", "'nvtx'"):
        daceml.ONNXModel(add().model, ranges="nvtx")  # pyright: ignore[reportArgumentType]

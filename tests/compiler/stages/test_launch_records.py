"""What the manifest keeps of kernels for a device: launches, and what their compiler said."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.codegen import kernel_objects
from daceml.codegen_cuda.device_objects import emulated_object
from daceml.codegen_cuda.kernel_facts import CompiledFacts, mangled, save_facts
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages import launch_records
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.program_folder import build
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.runtime.records.kernel_facts import KernelFacts
from daceml.runtime.records.manifest import LaunchRecord, Manifest
from daceml.toolchain.cache import Cache
from daceml.transformations.standard import device_recipe


class Scores(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3


def built(folder: Path, *, open_rows: bool = False) -> Manifest:
    """The manifest of one kernel, emulated."""
    shapes = ({0: torch.export.Dim("rows")},) if open_rows else None
    exported = torch.export.export(Scores(), (torch.randn(5, 300),), dynamic_shapes=shapes)
    done = optimise(onnx_network(exported, Stages()), Stages(), recipe=device_recipe())
    folder.mkdir()
    build(done, Cache(config().cache_folder), folder, Stages())
    return Manifest.load(folder)


def test_a_program_keeps_how_its_kernels_are_launched(tmp_path: Path):
    manifest = built(tmp_path / "program")
    (launch,) = [step.launch for step in manifest.steps if step.launch is not None]
    (step,) = [step for step in manifest.steps if step.kind == "kernel"]
    assert launch.function.endswith(step.kernel.removeprefix("k_"))
    assert launch == LaunchRecord(
        function=launch.function, grid=(2, 1, 1), block=(256, 1, 1), blocks=2, threads=256
    )


def test_open_sizes_are_expressions_over_the_programs_symbols(tmp_path: Path):
    manifest = built(tmp_path / "program", open_rows=True)
    (launch,) = [step.launch for step in manifest.steps if step.launch is not None]
    (symbol,) = manifest.symbols
    assert isinstance(launch.grid[0], str) and symbol in launch.grid[0] and "s00" not in launch.grid[0]
    # at 16 rows of 300 elements
    assert (launch.blocks, launch.threads) == (19, 256)


def test_what_the_compiler_said_of_a_kernel_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As if nvcc had compiled it: its facts lie beside the object."""
    facts = KernelFacts(registers=25, shared_bytes=16)

    def compiled(source: str, cache: Cache) -> Path:
        made = Path(shutil.copy(emulated_object(source, cache), tmp_path))
        (function,) = re.findall(r"DACEML_LAUNCH\((\w+)", source)
        said = {f"{mangled(function)}PKfPf": facts}
        save_facts(CompiledFacts(architecture=90, kernels=said), made)
        return made

    monkeypatch.setattr(kernel_objects, "emulated_object", compiled)
    (launch,) = [step.launch for step in built(tmp_path / "program").steps if step.launch is not None]
    assert (launch.architecture, launch.facts) == (90, facts)


def test_a_program_for_the_processor_launches_nothing():
    compiled = daceml.compile(Scores(), backward=False)
    x = torch.randn(5, 300)
    compiled(x)
    assert all(step.launch is None for step in daceml.explain(compiled, x).steps)


def test_manifests_without_launches_are_read(tmp_path: Path):
    built(tmp_path / "program")
    file = tmp_path / "program" / "manifest.json"
    record = json.loads(file.read_text())
    for step in record["steps"]:
        del step["launch"], step["nodes"]
    file.write_text(json.dumps(record))
    steps = Manifest.load(tmp_path / "program").steps
    assert [(step.launch, step.nodes) for step in steps] == [(None, ())] * len(steps)


def test_other_steps_have_no_launch():
    assert launch_records.launch_record(object(), {}, {}) is None  # pyright: ignore[reportArgumentType]

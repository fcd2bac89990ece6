"""Programs for CUDA devices: compiled and linked without one, refused where no part of them may run there."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from daceml.codegen.driver import driver_text
from daceml.codegen.kernel_source import kernel_source, signature
from daceml.codegen.planning.plan import make_plan
from daceml.codegen_cuda import device_objects
from daceml.codegen_cuda.toolchain import find_nvcc
from daceml.compiler.keys import program_key as program_keys
from daceml.compiler.pipeline import optimised_network, training_networks
from daceml.compiler.stages.lowered_network import Optimised
from daceml.compiler.stages.program_folder import build
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.errors import CallError, EnvironmentProblem, UnsupportedProgramError
from daceml.frontend.capture.call_device import device_of
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.refused_traces import refuse_moved
from daceml.frontend.onnx_export.export import export_program
from daceml.onnx_ops.external import external_call
from daceml.runtime.records.gradients import Wanted
from daceml.sdfg.network import LimitCheck
from daceml.toolchain import cxx as toolchains
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import toolchain, torch_header
from daceml.transformations.standard import standard_recipe
from tests.support.golden import golden, raises


class Looked(nn.Module):
    """What looks positions up, keeps memory in a workspace and copies an input to a result."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(11, 40), nn.LayerNorm(40)

    def forward(self, i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.table(i)) @ x
        return torch.softmax(y, -1), x.transpose(0, 1)


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(11, 8, mode="sum")

    def forward(self, i: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return self.bags(i, starts)


class Attending(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, 3, 17, 8) for _ in range(3))


NETWORKS = {
    "look-up": (Looked, lambda: (torch.arange(6), torch.randn(40, 9)), (False, True)),
    "bags": (Bags, lambda: (torch.arange(6), torch.tensor([0, 2])), (False, False)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.AvgPool2d(2)),
        lambda: (torch.randn(2, 3, 9, 11),),
        (True,),
    ),
    "dropout": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)),
        lambda: (torch.randn(4, 8),),
        (True,),
    ),
    "attention": (Attending, heads, (True, True, True)),
}


def halves(name: str) -> list[Optimised]:
    make, inputs, requiring = NETWORKS[name]
    module = make()
    wanted = Wanted(inputs=requiring, state=tuple(dict(module.named_parameters())))
    return training_networks(export_program(module, inputs()), wanted, device="cuda")[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_drivers_compile_with_the_functions_that_torch_has_for_devices(name: str, tmp_path: Path):
    for number, part in enumerate(halves(name)):
        plan = make_plan(part.network, external_call, given=())
        sources = {kernel.name: signature(kernel_source(kernel)) for kernel in plan.kernels}
        text = driver_text(plan, sources)
        folder = tmp_path / str(number)
        folder.mkdir()
        toolchain().compile_driver(text, folder, torch_header(Cache(config().cache_folder)))
        assert text.index("#define DACEML_ON_CUDA") < text.index("#include")
        assert set(re.findall(r"daceml_launch_k_\w+\(([\w>-]+)", text)) <= {"void", "c->stream"}
        assert "__program_" not in text and "aoti_torch_cpu_" not in text


@pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")
def test_programs_are_linked_to_the_libraries_of_the_device(tmp_path: Path):
    forward, _ = halves("dropout")
    build(forward, Cache(config().cache_folder), tmp_path, Stages())
    needed = (tmp_path / "program.so").read_bytes()
    assert b"libtorch_cuda.so\0" in needed and b"libcudart.so." in needed
    assert b"aoti_torch_cpu_" not in needed
    if torch.version.cuda is None:
        with pytest.raises(OSError, match=r"libcudart|libtorch_cuda"):
            ctypes.CDLL(str(tmp_path / "program.so"))
    else:  # the libraries that torch has loaded have every function of these names
        program = ctypes.CDLL(str(tmp_path / "program.so"), mode=os.RTLD_NOW)
        _, on_cuda = (ctypes.c_int32 * 2).in_dll(program, "daceml_program_v1")
        assert on_cuda == 1


@pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")
def test_a_program_for_a_device_is_found_by_a_machine_with_another_processor(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    exported = export_program(nn.LayerNorm(8), (torch.randn(3, 8),))

    def keys() -> tuple[str, str]:
        for made in (toolchains.toolchain, toolchains.device_toolchain):
            made.cache_clear()
        device = program_keys.program_key(exported, device="cuda", architecture=90)
        return device, program_keys.program_key(exported)

    request.addfinalizer(keys)  # behind the patches, which are undone first
    here = keys()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(toolchains, "processor", lambda: "another")
        there = keys()
    assert here[0] == there[0] and here[1] != there[1]
    flags = toolchains.device_toolchain().flags
    assert "-march=native" not in flags and "-march=native" in toolchains.toolchain().flags


def test_loops_of_the_processor_are_refused():
    program = export_program(nn.GELU(), (torch.randn(3, 5),))
    network = optimised_network(program, recipe=standard_recipe(), device="cuda").network
    with raises(UnsupportedProgramError, "schedule_on_device"):
        make_plan(network, external_call)


def test_passes_that_look_at_weights_on_the_processor_are_refused():
    program = export_program(nn.Linear(40, 40).eval(), (torch.randn(64, 40),))
    network = optimised_network(program, device="cuda").network
    network.limits.append(LimitCheck(array=network.inputs[0], limit=network.inputs[0]))
    with raises(UnsupportedProgramError, "processor"):
        make_plan(network, external_call)


def test_batch_norms_are_folded_where_weights_stay():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    program = export_program(module, (torch.randn(1, 3, 8, 8),))
    assert not optimised_network(program, device="cuda").network.prepared
    assert optimised_network(program, device="cuda", freeze=True).network.prepared


def test_results_on_another_device_are_left_to_eager():
    class Moving(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to("meta")

    program = torch.export.export(Moving(), (torch.ones(3),), strict=False)
    with raises(RunsEagerlyError, "meta"):
        refuse_moved(program, torch.device("cpu"))


def test_what_runs_on_the_processor_alone_is_not_chosen():
    program = export_program(nn.GRU(4, 5), (torch.randn(3, 2, 4),))
    nodes = {n.op_type: n for n in optimised_network(program, device="cuda").lowering.nodes}
    assert nodes["GRU"].chosen.startswith("native:")
    reason = dict(nodes["GRU"].refusals)["aten:products"]
    assert reason == golden()
    assert "cuda" in reason


def test_tensors_on_two_devices_are_refused():
    with raises(CallError, "cpu", "meta", "weight"):
        device_of([("argument 0", torch.ones(1)), ("weight", torch.ones(1, device="meta"))])
    assert device_of([]) == torch.device("cpu")


def test_programs_of_other_architectures_are_other_programs(monkeypatch: pytest.MonkeyPatch):
    def tools(architecture: int | None = None) -> SimpleNamespace:
        return SimpleNamespace(fingerprint=f"nvcc for {architecture}")

    monkeypatch.setattr(program_keys, "cuda_toolchain", tools)
    program = export_program(nn.Tanh(), (torch.randn(3),))
    keys = [program_keys.program_key(program, device="cuda", architecture=one) for one in (86, 90, 86)]
    assert keys[0] == keys[2] != keys[1]
    assert program_keys.program_key(program) == program_keys.program_key(program, architecture=86)


def test_kernels_are_compiled_for_the_architecture_of_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int | None] = []

    def asked_for(architecture: int | None = None) -> None:
        asked.append(architecture)
        raise EnvironmentProblem("no compiler here")

    monkeypatch.setattr(device_objects, "cuda_toolchain", asked_for)
    part = optimised_network(export_program(nn.Tanh(), (torch.randn(3),)), device="cuda", architecture=86)
    with pytest.raises(EnvironmentProblem):
        build(part, Cache(tmp_path / "cache"), tmp_path, Stages())
    assert set(asked) == {86}

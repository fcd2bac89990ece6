"""Networks whose every loop is a kernel of a device, run in emulation beside eager PyTorch in float64."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.codegen import kernel_objects
from daceml.codegen_cuda.kernel_unit import KernelUnit, kernel_unit
from daceml.codegen_cuda.toolchain import CudaToolchain, find_nvcc
from daceml.compiler.pipeline import onnx_network, training_networks
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.errors import ExecutionError
from daceml.frontend.onnx_export.export import export_program
from daceml.runtime.records.gradients import Wanted
from daceml.sdfg.network import Network
from daceml.sdfg.outline import Kernel, Outliner
from daceml.sdfg.scopes import top_maps
from daceml.toolchain.cxx import include_folder
from daceml.transformations.standard import device_recipe
from tests.support.golden import raises
from tests.support.sampling import sampled


class Mish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(nn.functional.softplus(x))


class ScaledMaskedSoftmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool).tril()
        return torch.softmax((x * 0.3).masked_fill(~mask, float("-inf")), dim=-1)


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)


# Extents that leave ragged tails of warps, blocks and vectors
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mish": (Mish, (3, 5, 137)),
    "bias and gelu": (lambda: nn.Sequential(nn.Linear(9, 70), nn.GELU()), (33, 9)),
    "layer norm": (lambda: nn.LayerNorm(70), (9, 70)),
    "layer norm of many rows": (lambda: nn.LayerNorm(70), (203, 70)),
    "layer norm that fills a device": (lambda: nn.LayerNorm(70), (5003, 70)),
    "masked softmax": (ScaledMaskedSoftmax, (2, 67, 67)),
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()), (4, 6, 5, 7)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2)),
        (2, 3, 9, 11),
    ),
    "encoder": (encoder, (2, 11, 16)),
}


# Of the encoder's kernels, tests/codegen_cuda/test_emulated_blocks.py runs the like
@pytest.mark.parametrize("name", sampled(NETWORKS, *(name for name in NETWORKS if name != "encoder")))
def test_training_in_emulation(name: str):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    exact, exact_x = copy.deepcopy(module).double(), x.double().requires_grad_()
    emulated = daceml.compile(module, recipe=device_recipe())
    x.requires_grad_()
    expected, seen = exact(exact_x), emulated(x)
    cotangent = torch.randn_like(seen)
    expected.backward(cotangent.double())
    seen.backward(cotangent)
    torch.testing.assert_close(seen.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(x.grad.double(), exact_x.grad, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(emulated.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_element_types(dtype: torch.dtype):
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x * x - 1, torch.abs(x)) + x.amax(-1, keepdim=True)

    x = (torch.randn(5, 37) * 4).to(dtype)
    emulated = daceml.compile(Function(function), recipe=device_recipe(), backward=False)
    seen, expected = emulated(x), function(x.double())
    assert seen.dtype == dtype
    tolerance = 2 * torch.finfo(dtype).eps if dtype.is_floating_point else 0
    torch.testing.assert_close(seen.double(), expected, rtol=tolerance, atol=tolerance)


class Function(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def test_a_launch_that_fails_names_its_kernel(monkeypatch: pytest.MonkeyPatch):
    def with_wide_blocks(kernel: Kernel) -> KernelUnit:
        unit = kernel_unit(kernel)
        return replace(unit, text=unit.text.replace("_threads, 1, 1", "_threads * 8, 1, 1"))

    monkeypatch.setattr(kernel_objects, "kernel_unit", with_wide_blocks)
    # no other test has this function, and so its program in the cache of all
    emulated = daceml.compile(
        Function(lambda x: torch.tanh(x) * 0.7331), recipe=device_recipe(), backward=False
    )
    with raises(ExecutionError, "2048 threads") as caught:
        emulated(torch.randn(7, 300))
    assert re.search(r"\w+ \(k_[0-9a-f]{20}\)", str(caught.value))


def test_an_unknown_size_is_an_argument_of_the_kernel():
    emulated = daceml.compile(Mish(), recipe=device_recipe(), backward=False, dynamic=True)
    for rows in (3, 300):
        x = torch.randn(rows, 7)
        torch.testing.assert_close(emulated(x), Mish()(x))


def test_every_loop_is_a_kernel_of_the_device():
    module = encoder().eval()
    network = onnx_network(export_program(module, (torch.randn(2, 11, 16),)), Stages())
    done = optimise(network, Stages(), recipe=device_recipe())
    assert {p.name: p.applied for p in done.network.passes}["DeviceSchedule"] == {
        "kernels on the device": len(top_maps(done.network.state))
    }
    assert all(entry.map.schedule.name == "GPU_Device" for entry in top_maps(done.network.state))


@pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")
def test_kernels_are_cuda(tmp_path: Path):
    """All in one unit: nvcc takes two seconds for our headers alone."""
    outliner = Outliner()
    for case in NETWORKS.values():
        for network in passes(*case):
            for entry in top_maps(network.state):
                outliner.outline(network.sdfg, network.state, entry)
    units = [kernel_unit(kernel).text for kernel in outliner.kernels.values()]
    tools = CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=90)
    facts = tools.compile("\n".join(units), tmp_path, includes=(include_folder(),))
    assert len(facts) == len(units)
    assert not [kernel for kernel, one in facts.items() if one.spill_bytes]


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("mish", 1, 1),
        ("masked softmax", 1, 1),
        ("layer norm of many rows", 1, 2),
        ("layer norm that fills a device", 1, 2),
    ],
)
def test_how_many_kernels_there_are(name: str, forward: int, backward: int):
    assert [len(top_maps(network.state)) for network in passes(*NETWORKS[name])] == [forward, backward]


def passes(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> list[Network]:
    """Forward and backward."""
    module, x = make(), torch.randn(shape)
    wanted = Wanted(inputs=(True,), state=tuple(dict(module.named_parameters())))
    done, _ = training_networks(export_program(module, (x,)), wanted, recipe=device_recipe())
    return [part.network for part in done]

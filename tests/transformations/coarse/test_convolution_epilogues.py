"""Convolutions with a relu inside, as cuDNN has them: where, why not elsewhere, and the numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.codegen.planning.plan import make_plan
from daceml.compiler.pipeline import onnx_network, optimised_network
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.onnx_export.export import export_program
from daceml.onnx_ops.external import external_call
from daceml.sdfg.external import AtenCall
from daceml.sdfg.network import Device, Network
from daceml.transformations.coarse import convolution_epilogues
from daceml.transformations.coarse.convolution_epilogues import NAME, fuse_convolution_epilogues
from daceml.transformations.recipe import Recipe
from daceml.transformations.standard import device_recipe, standard_recipe
from tests.support.device_stand_ins import stand_ins
from tests.support.golden import golden
from tests.transformations.coarse.lifted import operators, reasons


class Block(nn.Module):
    """A convolution with a relu, then one to whose result the input is added first."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1, **more)
        self.second = nn.Conv2d(4, 4, (1, 3), padding=(0, 2), dilation=(1, 2), **more)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + x)


def network_of(module: nn.Module, x: torch.Tensor, *, device: Device = "cuda") -> Network:
    network = onnx_network(export_program(module.eval(), (x,)), Stages(), device=device)
    fuse_convolution_epilogues(network)
    network.sdfg.validate()
    return network


def image(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 4, 7, 9).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_residual_block_is_two_operators(dtype: torch.dtype):
    assert operators(network_of(Block().to(dtype), image(dtype))) == {"ConvActivation": 2}


def broadcast() -> nn.Module:
    class Broadcast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(4, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.convolution(x) + x[:1])

    return Broadcast()


@pytest.mark.parametrize(
    ("make", "dtype", "device", "fact"),
    [
        (lambda: Block(groups=2), torch.float32, "cuda", "2 groups"),
        (Block, torch.float64, "cuda", "float64"),
        (Block, torch.float32, "cpu", "CUDA"),
        (broadcast, torch.float32, "cuda", "shape"),
    ],
)
def test_what_stays_says_why(make: Callable[[], nn.Module], dtype: torch.dtype, device: Device, fact: str):
    network = network_of(make().to(dtype), image(dtype), device=device)
    assert "ConvActivation" not in operators(network)
    said = "\n".join(reasons(network, NAME))
    assert said == golden()
    assert fact in said


def test_a_convolution_without_a_bias_is_left_alone():
    assert operators(network_of(Block(bias=False), image())) == {"Conv": 2, "Relu": 2, "Add": 1}


def test_no_recipe_has_it():
    names = [step.name for recipe in (device_recipe(), standard_recipe()) for step in recipe]
    assert "fuse_convolution_epilogues" not in names


def test_a_program_for_a_device_has_two_calls_and_no_kernel():
    recipe = Recipe(fuse_convolution_epilogues, *device_recipe())
    network = optimised_network(
        export_program(Block().eval(), (image(),)), recipe=recipe, device="cuda"
    ).network
    plan = make_plan(network, external_call)
    calls = [step.action for step in plan.steps if isinstance(step.action, AtenCall)]
    assert [call.function for call in calls] == ["device_convolution_relu"] * 2 and not plan.kernels
    assert [call.arguments[3] is None for call in calls] == [True, False]


def fused(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, *geometry: Any) -> torch.Tensor:
    """`cudnn_convolution_relu`, channels innermost in memory, as cuDNN may give it."""
    assert bias is not None
    y = torch.relu(torch.conv2d(x, w, bias, *geometry))
    return y.contiguous(memory_format=torch.channels_last)


def fused_sum(
    x: torch.Tensor, w: torch.Tensor, z: torch.Tensor, alpha: float | None, bias: torch.Tensor, *geometry: Any
) -> torch.Tensor:
    """`cudnn_convolution_add_relu`."""
    assert z.shape[1] == w.shape[0]
    y = torch.conv2d(x, w, bias, *geometry) + (1 if alpha is None else alpha) * z
    return torch.relu(y).contiguous(memory_format=torch.channels_last)


def test_values_of_the_calls(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    monkeypatch.setattr(convolution_epilogues, "DEVICE", "cpu")
    module, x = Block().eval(), image()
    expected = copy.deepcopy(module).double()(x.double()).detach()
    operators_of_cudnn = {"cudnn_convolution_relu": fused, "cudnn_convolution_add_relu": fused_sum}
    with stand_ins(**operators_of_cudnn) as called, torch.no_grad():
        recipe = Recipe(fuse_convolution_epilogues, *standard_recipe())
        y = daceml.compile(module, recipe=recipe)(x)
    assert called == ["cudnn_convolution_relu", "cudnn_convolution_add_relu"]
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-6)

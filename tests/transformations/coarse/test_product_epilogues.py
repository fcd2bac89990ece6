"""Products that apply an activation before they write: where, why not elsewhere, and the numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable

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
from daceml.transformations.coarse import product_epilogues
from daceml.transformations.coarse.product_epilogues import NAME, fuse_product_epilogues
from daceml.transformations.recipe import Recipe, Step
from daceml.transformations.standard import device_recipe, standard_recipe
from tests.support.device_stand_ins import stand_ins
from tests.support.golden import golden
from tests.transformations.coarse.lifted import operators, reasons

HALF = torch.float16


def network_of(module: nn.Module, x: torch.Tensor, *, device: Device = "cuda", relu: bool = False) -> Network:
    network = onnx_network(export_program(module.eval(), (x,)), Stages(), device=device)
    fuse_product_epilogues(network, relu=relu)
    network.sdfg.validate()
    return network


def layers(activation: nn.Module, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(9, 7, bias=bias), activation)


@pytest.mark.parametrize("shape", [(5, 9), (2, 3, 9)])
def test_gelu_by_tanh_of_half_types_is_taken_by_default(shape: tuple[int, ...]):
    network = network_of(layers(nn.GELU("tanh")).to(HALF), torch.randn(shape).to(HALF))
    found = operators(network)
    assert found["GemmActivation"] == 1 and "Gelu" not in found and "Gemm" not in found


def test_relu_is_taken_where_it_is_asked_for():
    x = torch.randn(5, 9)
    assert operators(network_of(layers(nn.ReLU()), x, relu=True)) == {"GemmActivation": 1}
    refused = network_of(layers(nn.ReLU()), x)
    assert operators(refused) == {"Gemm": 1, "Relu": 1}
    (reason,) = reasons(refused, NAME)
    assert reason == golden()
    assert all(fact in reason for fact in ("cuBLASLt", "relu", "NaN"))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, 7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return y, nn.functional.gelu(y, approximate="tanh")


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.addmm(self.linear.bias, x, self.linear.weight.T, beta=0.5))


@pytest.mark.parametrize(
    ("make", "dtype", "device", "fact"),
    [
        (lambda: layers(nn.GELU()), HALF, "cuda", "tanh"),
        (lambda: layers(nn.GELU("tanh")), torch.float32, "cuda", "float32"),
        (lambda: layers(nn.ReLU()), torch.float64, "cuda", "float64"),
        (lambda: layers(nn.GELU("tanh")), HALF, "cpu", "CUDA"),
        (Scaled, torch.float32, "cuda", "scaled by 0.5"),
        (Twice, HALF, "cuda", "Gemm"),
    ],
)
def test_what_stays_says_why(make: Callable[[], nn.Module], dtype: torch.dtype, device: Device, fact: str):
    network = network_of(make().to(dtype), torch.randn(5, 9).to(dtype), device=device, relu=True)
    assert "GemmActivation" not in operators(network)
    said = "\n".join(reasons(network, NAME))
    assert said == golden()
    assert fact in said


def test_a_product_without_a_bias_is_left_alone():
    assert "GemmActivation" not in operators(
        network_of(layers(nn.ReLU(), bias=False), torch.randn(5, 9), relu=True)
    )


def test_the_recipe_of_devices_has_it_for_inference_in_front_of_separate_biases():
    for situation in ("inference", "frozen"):
        names = [step.name for step in device_recipe().when(situation)]
        assert names.index("fuse_product_epilogues") < names.index("separate_biases")
    assert "fuse_product_epilogues" not in [step.name for step in device_recipe().when("training")]
    assert "fuse_product_epilogues" not in [step.name for step in standard_recipe()]


def test_a_program_for_a_device_has_one_call_and_no_kernel():
    module, x = layers(nn.GELU("tanh")).to(HALF).eval(), torch.randn(5, 9).to(HALF)
    plan = make_plan(optimised_network(export_program(module, (x,)), device="cuda").network, external_call)
    calls = [step.action for step in plan.steps if isinstance(step.action, AtenCall)]
    assert [call.function for call in calls] == ["device_addmm_activation"] and not plan.kernels
    assert calls[0].arguments[3:] == (1.0, 1.0, True)


def on_processor(module: nn.Module, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """The result of the compiled calls, by torch's kernels for the processor."""
    monkeypatch.setattr(product_epilogues, "DEVICE", "cpu")
    recipe = Recipe(Step(fuse_product_epilogues, {"relu": True}), *standard_recipe())
    with stand_ins(), torch.no_grad():
        network = optimised_network(export_program(module, (x,)), recipe=recipe).network
        calls = [step.action for step in make_plan(network, external_call).steps]
        assert any(isinstance(c, AtenCall) and c.function == "device_addmm_activation" for c in calls)
        return daceml.compile(copy.deepcopy(module), recipe=recipe)(x)


@pytest.mark.parametrize("shape", [(37, 9), (2, 3, 9)])
def test_values_of_the_call(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    module, x = nn.Sequential(layers(nn.ReLU()), nn.Linear(7, 3), nn.ReLU()).eval(), torch.randn(shape)
    expected = copy.deepcopy(module).double()(x.double()).detach()
    assert float(expected.max()) > 0
    torch.testing.assert_close(on_processor(module, x, monkeypatch).double(), expected, rtol=1e-5, atol=1e-6)


def test_gelu_reaches_the_call(monkeypatch: pytest.MonkeyPatch):
    """torch's kernel for the processor applies GELU by erf, 1e-4 from that by tanh; relu is 0.17 away."""
    torch.manual_seed(0)
    module, x = layers(nn.GELU("tanh")).to(torch.bfloat16).eval(), torch.randn(37, 9).to(torch.bfloat16)
    expected = nn.functional.gelu(copy.deepcopy(module)[0].double()(x.double())).detach()
    y = on_processor(module, x, monkeypatch)
    assert float(expected.min()) < -0.1
    torch.testing.assert_close(y.double(), expected, rtol=2e-2, atol=1e-2)

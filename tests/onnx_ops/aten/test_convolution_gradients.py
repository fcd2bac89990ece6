"""Gradients of depthwise convolutions with large windows, for every geometry."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.module.module import DaceModule
from tests.support.golden import golden

Geometry = dict[str, Any]
CASES: dict[str, tuple[Geometry, tuple[int, ...]]] = {
    "ConvNeXt": ({"kernel_size": 7, "padding": 3}, (2, 20, 23, 19)),
    "rows shorter than a vector": ({"kernel_size": 5, "padding": 2}, (3, 40, 33, 3)),
    "a row of one": ({"kernel_size": (5, 4), "padding": (2, 2)}, (3, 70, 40, 1)),
    "strides": ({"kernel_size": 5, "stride": (2, 3), "padding": 2}, (2, 33, 28, 31)),
    "dilations": ({"kernel_size": (6, 3), "padding": (5, 4), "dilation": (2, 4)}, (2, 20, 30, 29)),
    "stride and dilation": (
        {"kernel_size": (2, 9), "stride": 2, "padding": (1, 8), "dilation": (1, 3)}, (2, 35, 21, 60),
    ),
    "no padding": ({"kernel_size": (4, 8)}, (1, 30, 40, 41)),
    "a sequence": ({"kernel_size": 31, "padding": 15}, (3, 17, 200)),
    "a sequence with a stride": ({"kernel_size": 17, "stride": 5, "padding": 3}, (3, 60, 333)),
    "all of 1, 2, 3, 4 and 7 at once": ({"kernel_size": (3, 17), "padding": (1, 8)}, (2, 20, 20, 40)),
}  # fmt: skip


def steps(module: nn.Module, x: torch.Tensor) -> list[str]:
    assert isinstance(module, DaceModule)
    variant, _ = module.session.variant((x,), {})
    assert variant.backward is not None
    return [step.implementation for step in variant.backward.program.manifest.steps]


def gradients(call: Any, module: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    module.zero_grad()
    given = x.clone().requires_grad_()
    call(given).sin().sum().backward()
    found = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    return found | {"x": given.grad} if given.grad is not None else found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_torch(name: str, bias: bool):
    geometry, shape = CASES[name]
    torch.manual_seed(0)
    convolution = nn.Conv2d if len(shape) == 4 else nn.Conv1d
    module = convolution(shape[1], shape[1], groups=shape[1], bias=bias, **geometry)
    x = torch.randn(shape)
    compiled = daceml.compile(module)
    ours = gradients(compiled, module, x)
    assert "aten:depthwise" in steps(compiled, x.requires_grad_())
    eager = gradients(module, module, x.detach())
    exact = gradients(module.double(), module, x.detach().double())
    assert ours.keys() == exact.keys() == {"weight", "x", *(["bias"] if bias else [])}
    for key, expected in exact.items():
        error, usual = ((g.double() - expected).abs().max() for g in (ours[key], eager[key]))
        assert error <= 2 * usual + 1e-6 * expected.abs().max(), key


@pytest.mark.parametrize(
    ("shape", "geometry"),
    [
        ((2, 32, 40, 40), {"kernel_size": 3, "padding": 1, "groups": 32}),
        ((2, 32, 40, 40), {"kernel_size": 7, "padding": 3, "groups": 16}),
        ((2, 32, 40, 40), {"kernel_size": 7, "padding": 3, "groups": 32, "dtype": torch.float64}),
    ],
    ids=["small windows", "groups of two", "float64"],
)
def test_others_are_torchs(shape: tuple[int, ...], geometry: Geometry):
    module = nn.Conv2d(shape[1], shape[1], **geometry)
    x = torch.randn(shape, dtype=module.weight.dtype, requires_grad=True)
    compiled = daceml.compile(module)
    assert "aten:convolution" in steps(compiled, x)
    variant, _ = compiled.session.variant((x,), {})  # pyright: ignore[reportAttributeAccessIssue]
    refusals = [r for s in variant.backward.program.manifest.steps for r in s.refusals if "depthwise" in r]
    assert "\n".join(refusals) == golden()


def test_an_open_batch():
    module = nn.Conv2d(24, 24, 7, padding=3, groups=24)
    compiled = daceml.compile(module, dynamic=True)
    for batch in (2, 3, 1):
        x = torch.randn(batch, 24, 15, 18)
        ours, eager = gradients(compiled, module, x), gradients(module, module, x)
        for name, expected in eager.items():
            torch.testing.assert_close(ours[name], expected, rtol=1e-4, atol=1e-4)


def test_images_with_channels_innermost_and_a_second_call():
    module = nn.Conv2d(24, 24, 7, padding=3, groups=24)
    compiled = daceml.compile(module)
    for x in (torch.randn(2, 24, 15, 18), torch.randn(2, 24, 15, 18).to(memory_format=torch.channels_last)):
        ours, eager = gradients(compiled, module, x), gradients(module, module, x)
        for name, expected in eager.items():
            torch.testing.assert_close(ours[name], expected, rtol=1e-4, atol=1e-4)

"""Complex numbers that become pairs of real ones, and those that stay with torch's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import daceml
from tests.support.eager_twin import Function, unlike_eager

ANGLES = torch.outer(torch.arange(8.0), torch.tensor([1.0, 0.1]))
TURNS = torch.polar(torch.ones_like(ANGLES), ANGLES)


def rotary(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two tensors that are turned by the same angles."""
    turned = [
        torch.view_as_real(torch.view_as_complex(t.reshape(2, 5, 3, 2, 2)) * TURNS[None, :5, None]).flatten(3)
        for t in (x, y)
    ]
    return (turned[0] * turned[1]).sum(-1)


def arithmetic(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z, w = torch.polar(x.abs() + 0.1, y), torch.complex(x, y)
    v = (z * w.conj() + z - 2 * w) * (1.5 - 0.5j) + x
    joined = torch.cat([v, -z], 1).transpose(0, 1)
    return v.real * 2 + v.imag, (v * v).sum(1).real, joined[1:].imag, v.mean(0, keepdim=True).conj().imag * 3


def returned(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = torch.complex(x, y) * TURNS[0, 0]
    return z * z, z.real + x


def transformed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Between two transforms there is one product: it is cheaper as a call."""
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y), n=x.shape[-1])


def infinite(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.complex(x / 0, y) * y + torch.complex(y, y - x))


def numbers(*shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for _ in range(2)]


CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "rotary": (rotary, numbers(2, 5, 3, 4)),
    "arithmetic": (arithmetic, numbers(3, 4)),
    "returned": (returned, numbers(3, 4)),
    "transformed": (transformed, numbers(3, 6)),
    "infinite": (infinite, numbers(3, 4)),
    "empty": (arithmetic, numbers(2, 0)),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_torch(name: str, gradients: bool):
    function, inputs = CASES[name]
    assert unlike_eager(function, *inputs, gradients=gradients) == []


@pytest.mark.parametrize(
    ("name", "calls"),
    [("rotary", ["aten.view_as_real.default"]), ("arithmetic", [])],
)
def test_only_what_comes_from_outside_is_taken_apart_by_torch(name: str, calls: list[str]):
    function, inputs = CASES[name]
    module = daceml.compile(Function(function), backward=False)
    module(*inputs)
    steps = module.session.latest.program.manifest.steps
    assert [step.label for step in steps if step.implementation == "aten:dispatcher"] == calls

"""0.0 and -0.0 are two numbers, wherever a graph has both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.frontend.onnx_export.negative_zeros import NegativeZero


class Signs(nn.Module):
    """Zeros of both signs as factors, choices, fillings and bounds."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x * 0.0,
            x * -0.0,
            torch.where(x > 1, 0.0, -0.0),
            torch.where(x > 1, -0.0, 0.0),
            torch.full_like(x, -0.0),
            torch.full_like(x, 0.0),
            functional.pad(x, (1, 0), value=-0.0),
            functional.pad(x, (1, 0), value=0.0),
            torch.stack([x.new_tensor(0.0), x.new_tensor(-0.0)]),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_both_zeros_keep_their_signs(dtype: torch.dtype):
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype)
    for found, expected in zip(daceml.compile(Signs(), backward=False)(x), Signs()(x), strict=True):
        assert torch.equal(found, expected)
        assert torch.equal(found.signbit(), expected.signbit())


def test_a_negative_zero_is_a_number_that_equals_itself_alone():
    zero = NegativeZero()
    assert str(float(zero)) == "-0.0" and isinstance(zero, float)
    assert zero == NegativeZero() and hash(zero) == hash(NegativeZero())
    assert zero != 0.0 and zero != -0.0 and zero != 0


def ones(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


def zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x)


OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "relu6": functional.relu6,
    "hardtanh from 0": lambda x: functional.hardtanh(x, 0.0, 2.0),
    "hardtanh to 0": lambda x: functional.hardtanh(x, -2.0, 0.0),
    "leaky_relu": functional.leaky_relu,
    "threshold": lambda x: functional.threshold(x, -1.0, 0.0),
    "silu": functional.silu,
    "logsigmoid far out": lambda x: functional.logsigmoid(x.abs() * 1000 + 200),
    "product with a logarithm": lambda x: torch.xlogy(x, ones(x) / 2),
    "clamp from 0": lambda x: x.clamp(min=0.0),
    "clamp to -0": lambda x: x.clamp(max=-0.0),
    "clamp to tensors": lambda x: torch.clamp(x, zeros(x), ones(x)),
    "trunc": torch.trunc,
    "round": torch.round,
    "ceil": torch.ceil,
    "frac": torch.frac,
    "divided and truncated": lambda x: torch.div(x, 3.0, rounding_mode="trunc"),
    "fmod": lambda x: torch.fmod(x, 1.0),
    "remainder": lambda x: torch.remainder(x, -1.0),
    "atan": torch.atan,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sqrt": lambda x: torch.sqrt(x * 0),
    "square root as a power": lambda x: (x * 0) ** 0.5,
    "times -1": lambda x: x * -1,
    "neg": torch.neg,
    "0 - x": lambda x: 0 - x,
    "x + 0": lambda x: x + 0.0,
    "maximum": lambda x: torch.maximum(x, -x),
    "maximum of 0": lambda x: torch.maximum(zeros(x), x),
    "minimum": lambda x: torch.minimum(x, -x),
    "minimum of 0": lambda x: torch.minimum(x, zeros(x)),
    "amax": lambda x: torch.stack([x, -x], -1).amax(-1),
    "amin": lambda x: torch.stack([-x, x], -1).amin(-1),
    "max of rows": lambda x: torch.stack([x, -x]).max(0)[0],
    "sum of one": lambda x: x.unsqueeze(-1).sum(-1),
    "mean of one": lambda x: x.unsqueeze(0).mean(0),
    "product of one": lambda x: x.unsqueeze(-1).prod(-1),
    "sum of two": lambda x: torch.stack([x, x]).sum(0),
    "cumsum": lambda x: x.unsqueeze(-1).cumsum(-1),
    "copysign": lambda x: torch.copysign(zeros(x), x),
    "where": lambda x: torch.where(x >= 0, x, -x),
    "lerp": lambda x: torch.lerp(ones(x), x, 1.0),
    "lerp by tensors": lambda x: torch.lerp(ones(x), x, ones(x)),
    "integers": lambda x: x.to(torch.int32).to(x.dtype),
    "bytes": lambda x: x.to(torch.int8).to(x.dtype),
}


class Table(nn.Module):
    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [function(x) for x in inputs for function in OPERATORS.values()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_zeros_have_eagers_sign(dtype: torch.dtype):
    """Where torch's vector and scalar loops give a zero different signs, either is right."""
    elements = torch.tensor([0.0, -0.0, 0.25, -0.25, 1.0, -1.0], dtype=dtype)
    rows = [elements[:3], elements.repeat(7), torch.stack([elements, elements + 5], -1)[:, 0]]
    ours = iter(daceml.compile(Table(), backward=False)(*rows))
    wrong: list[str] = []
    rounding = 2 * torch.finfo(dtype).eps  # of the library's exp
    for x in rows:
        for name, function in OPERATORS.items():
            found = next(ours).flatten()
            for number, given in zip(found, x, strict=True):
                eager = torch.cat([function(given.expand(n).contiguous()).flatten() for n in (1, 40)])
                signs = set(eager.signbit().tolist())
                close = bool(torch.isclose(number, eager[0], rtol=rounding, atol=0.0))
                if not close or (number == 0 and bool(number.signbit()) not in signs):
                    wrong.append(f"{name} of {float(given)}: {float(number)} instead of {float(eager[0])}")
    assert sorted(set(wrong)) == []


@pytest.mark.parametrize("native", [False, True])
def test_a_gradient_at_either_zero_is_eagers(native: bool):
    class Bounded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            bounded = (functional.hardtanh(x, 0.0, 2.0), functional.hardtanh(x, -2.0, 0.0))
            return torch.stack([torch.relu(x), functional.relu6(x), *bounded])

    gradients: list[torch.Tensor] = []
    for module in (Bounded(), daceml.compile(Bounded(), backward=True, prefer_native=native)):
        x = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 6.0, 7.0], requires_grad=True)
        module(x).backward(torch.arange(1.0, 33.0).reshape(4, 8))
        assert x.grad is not None
        gradients.append(x.grad)
    assert torch.equal(*gradients)

"""Sums on a device: what they are added up in, and that nothing is added up atomically."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn

import daceml
from daceml.transformations.standard import device_recipe
from tests.codegen_cuda.networks import Case, kernel_units
from tests.support.sampling import sampled

NARROW = [torch.float16, torch.bfloat16]


class Sum(nn.Module):
    """Over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1)


class Scaled(nn.Module):
    """Its gradients are sums of columns and of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).mean()


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_many_ones_are_counted(dtype: torch.dtype):
    emulated = daceml.compile(Sum(), recipe=device_recipe(), backward=False)
    assert emulated(torch.ones(3, 4096, dtype=dtype)).tolist() == [4096.0] * 3
    # in the narrow type itself, a bfloat16 sum would stay at 256
    values = torch.full((2, 70_000), 2.0**-7, dtype=dtype)
    exact = torch.tensor([70_000 * 2.0**-7] * 2).to(dtype)
    assert torch.equal(emulated(values), exact)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_gradients_of_scales_are_counted(dtype: torch.dtype):
    module = Scaled().to(dtype)
    emulated = daceml.compile(module, recipe=device_recipe())
    emulated(torch.ones(2, 1024, 40, dtype=dtype)).backward(torch.tensor(1.0, dtype=dtype))
    assert module.weight.grad is not None
    torch.testing.assert_close(
        module.weight.grad.double(), torch.full((40,), 0.025).double(), rtol=1e-2, atol=0
    )


@pytest.mark.parametrize("dtype", sampled(NARROW, torch.bfloat16), ids=str)
def test_threads_exchange_float32(dtype: torch.dtype):
    """But for means of values, of float64."""
    case = Case(build=lambda: nn.Sequential(nn.LayerNorm(1030), nn.Softmax(-1)), shapes=((300, 1030),))
    text = "".join(unit.text for unit in kernel_units(case, dtype))
    exchanged = re.findall(r"(\S+) _out0;\s*/+\s*// Tasklet code[^\n]*\s*_out0 = block_sum", text)
    assert set(exchanged) == {"float", "double"}
    assert exchanged.count("double") == 1
    assert "ReductionType::Sum, float" in text
    assert not re.search(r"ReductionType::Sum, dace::b?float16", text)


class Biased(nn.Module):
    """The gradient of its bias is a sum of few columns over many rows."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.bias)


def test_shares_of_few_columns_are_added_up_by_several_warps():
    torch.manual_seed(0)
    module, x, cotangent = Biased(40), torch.randn(5003, 40), torch.randn(5003, 40)
    daceml.compile(module, recipe=device_recipe())(x.requires_grad_()).backward(cotangent)
    terms = (x + module.bias > 0).double() * cotangent.double()
    assert module.bias.grad is not None
    # 17 rows in a chunk, 295 chunks for 128 threads, and what these have joined in a tree
    limit = (17 + 3 + 7) * 2.0**-24 * terms.abs().sum(0)
    assert ((module.bias.grad.double() - terms.sum(0)).abs() <= limit).all()


class Norms(nn.Module):
    """Statistics along rows, and of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.channels = nn.LayerNorm(67), nn.BatchNorm1d(48)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rows(x), self.channels(x)


def test_variances_do_not_cancel():
    # many channels, so that errors of their means are those on average: eager's are float64, rounded once
    torch.manual_seed(0)
    eager = Norms()
    emulated = daceml.compile(copy.deepcopy(eager), recipe=device_recipe())
    exact = copy.deepcopy(eager).double()
    for mean in (1e3, 1e4):
        x = torch.randn(3, 48, 67) + mean
        cotangents = [torch.randn(x.shape) for _ in range(2)]
        ours, theirs, expected = (
            _step(module, x.to(dtype), cotangents)
            for module, dtype in ((emulated, torch.float32), (eager, torch.float32), (exact, torch.float64))
        )
        for name, value in expected.items():
            error, allowed = (float((t[name].double() - value).norm()) for t in (ours, theirs))
            assert error <= 3 * allowed + 2**-23 * float(value.norm()), (mean, name, error, allowed)


def _step(module: nn.Module, x: torch.Tensor, cotangents: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    x = x.clone().requires_grad_()
    module.zero_grad()
    results = module(x)
    torch.autograd.backward(results, [c.to(x.dtype) for c in cotangents])
    assert x.grad is not None
    found = {"rows": results[0].detach(), "channels": results[1].detach(), "gradient": x.grad}
    found |= {
        f"gradient of {name}": p.grad.clone() for name, p in module.named_parameters() if p.grad is not None
    }
    return found | {name: b.clone() for name, b in module.named_buffers() if b.is_floating_point()}

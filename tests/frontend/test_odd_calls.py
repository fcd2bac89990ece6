"""Calls with arguments that are not what they seem: without memory, overlapping, cyclic, with tangents."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from daceml.errors import CallError, DacemlError, ExecutionError, ExportError
from daceml.frontend.module import compile_module


def linear() -> Any:
    torch.manual_seed(0)
    return compile_module(nn.Linear(4, 3).requires_grad_(False), backward=False)


@pytest.mark.parametrize("size", [0, 20])
def test_a_tensor_without_all_of_its_memory_is_refused(size: int):
    module = linear()
    x = torch.ones(2, 4)
    module(x)
    x.untyped_storage().resize_(size)
    with pytest.raises(ExecutionError) as error:
        module(x)
    assert error.value.why == "input 'input' has no memory for all of its elements: its storage was resized"
    torch.testing.assert_close(module(torch.ones(2, 4)), module.session.eager(torch.ones(2, 4)))


def test_a_weight_without_memory_is_refused():
    module = linear()
    module(torch.ones(2, 4))
    module.weight.untyped_storage().resize_(0)
    with pytest.raises(DacemlError, match="weight does not fit") as error:
        module(torch.ones(2, 4))
    assert "its storage was resized" in error.value.why


def test_empty_tensors_need_no_memory():
    module = linear()
    assert module(torch.empty(0, 4)).shape == (0, 3)


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(2, 4))])
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_is_refused(make: Callable[[nn.Module], nn.Module]):
    scripted = make(nn.Linear(4, 3))
    with pytest.raises(ExportError, match="the module is TorchScript") as error:
        compile_module(scripted)
    assert error.value.fix == "pass the module from before torch.jit.script or torch.jit.trace"
    with pytest.raises(ExportError, match="submodule '1' is TorchScript"):
        compile_module(nn.Sequential(nn.ReLU(), scripted))(torch.ones(2, 4))


def test_arguments_that_hold_themselves():
    cyclic: list[Any] = [torch.ones(2, 4)]
    cyclic.append(cyclic)
    with pytest.raises(CallError, match="nested too deeply"):
        linear()(cyclic)


def test_tangents_are_carried_by_the_eager_module():
    module, x = linear(), torch.randn(2, 4)
    with torch.no_grad(), forward_ad.dual_level():
        result = module(forward_ad.make_dual(x, torch.ones_like(x)))
        torch.testing.assert_close(forward_ad.unpack_dual(result).tangent, module.weight.sum(1).expand(2, 3))
    assert not module.session.variants


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.total.add_(1)
        return x.add_(y) * 2 + self.total


def test_inputs_that_overlap_are_refused_at_the_first_call_too():
    module = compile_module(Adds(), backward=False)
    base, square = torch.ones(6, 4), torch.ones(4, 4)
    same = torch.ones(3, 4)
    for args in ((same, same), (base[:3], base[1:4]), (module.total, torch.ones(3, 4))):
        with pytest.raises(CallError, match="share memory") as error:
            module(*args)
        assert error.value.why.startswith(("x and y have", "y and x have", "x and total", "total and x"))
    assert (base == 1).all() and (square == 1).all() and (module.total == 0).all()


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(8, 4))
        self.register_buffer("v", self.k[2:4])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.k.add_(1)
        return self.v + x


def test_a_module_whose_buffers_overlap_runs_eagerly(caplog: pytest.LogCaptureFixture):
    eager, module = Views(), compile_module(Views(), backward=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            torch.testing.assert_close(module(torch.ones(4)), eager(torch.ones(4)))
    assert "Views runs eagerly: forward changes 'k', which shares memory with 'v'" in caplog.text


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 1.0


class TakesBatch(nn.Module):
    def forward(self, batch: Batch) -> Batch:
        return Batch(batch.x * batch.scale, batch.scale)


def test_dataclasses_are_arguments_once_they_are_registered():
    module, x = compile_module(TakesBatch(), backward=False), torch.randn(3)
    with pytest.raises(CallError, match="is a Batch") as error:
        module(Batch(x))
    assert (
        error.value.fix == "call torch.export.register_dataclass(Batch) once: its fields are arguments then"
    )
    torch.export.register_dataclass(Batch)
    for scale in (2.0, 3.0):
        result = module(Batch(x, scale))
        assert type(result) is Batch and result.scale == scale
        torch.testing.assert_close(result.x, x * scale)

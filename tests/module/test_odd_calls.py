"""Calls with arguments that are not what they seem: without memory, overlapping, cyclic, with tangents."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from daceml.errors import CallError, DacemlError, ExecutionError, ExportError, MistracedOperatorError
from daceml.module.module import compile_module
from tests.support.golden import golden, raises


def linear() -> Any:
    torch.manual_seed(0)
    return compile_module(nn.Linear(4, 3).requires_grad_(False), backward=False)


@pytest.mark.parametrize("size", [0, 20])
def test_a_tensor_without_all_of_its_memory_is_refused(size: int):
    module = linear()
    x = torch.ones(2, 4)
    module(x)
    x.untyped_storage().resize_(size)
    with raises(ExecutionError, "'input'", "storage", exact=False) as refusal:
        module(x)
    assert refusal.value.why == golden()
    torch.testing.assert_close(module(torch.ones(2, 4)), module.session.eager(torch.ones(2, 4)))


def test_a_weight_without_memory_is_refused():
    module = linear()
    module(torch.ones(2, 4))
    module.weight.untyped_storage().resize_(0)
    with raises(DacemlError, "weight", "storage"):
        module(torch.ones(2, 4))


def test_empty_tensors_need_no_memory():
    module = linear()
    assert module(torch.empty(0, 4)).shape == (0, 3)


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(2, 4))])
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_is_refused(make: Callable[[nn.Module], nn.Module]):
    scripted = make(nn.Linear(4, 3))
    with raises(ExportError, "TorchScript", type(scripted).__name__, "torch.jit.script"):
        compile_module(scripted)
    with raises(ExportError, "'1'", "TorchScript"):
        compile_module(nn.Sequential(nn.ReLU(), scripted))(torch.ones(2, 4))


def test_arguments_that_hold_themselves():
    cyclic: list[Any] = [torch.ones(2, 4)]
    cyclic.append(cyclic)
    with raises(CallError):
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
    pairs = ((same, same), "y"), ((base[:3], base[1:4]), "y"), ((module.total, torch.ones(3, 4)), "total")
    for args, other in pairs:
        with raises(CallError, "tensor.clone()", exact=False) as refusal:
            module(*args)
        assert {"x", other} <= set(re.findall(r"\w+", refusal.value.why)), "in one order or the other"
        assert [refusal.value.what, refusal.value.fix] == [golden(), golden()]
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
    (message,) = caplog.messages
    assert "Views" in message and "'k'" in message and "'v'" in message and message == golden()


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 1.0


class TakesBatch(nn.Module):
    def forward(self, batch: Batch) -> Batch:
        return Batch(batch.x * batch.scale, batch.scale)


def test_dataclasses_are_arguments_registered_or_not():
    module, x = compile_module(TakesBatch(), backward=False), torch.randn(3)

    def agree() -> None:
        for scale in (2.0, 3.0):
            result = module(Batch(x, scale))
            assert type(result) is Batch and result.scale == scale
            torch.testing.assert_close(result.x, x * scale)

    agree()
    torch.export.register_dataclass(Batch)
    agree()


@torch.library.custom_op("daceml_tests::first_row", mutates_args=())
def first_row(x: torch.Tensor) -> torch.Tensor:
    return x[:1].clone()


@first_row.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Mistraced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(first_row(self.first(x).tanh()))


class MistracedAndCounts(Mistraced):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


@torch.no_grad()
@pytest.mark.parametrize("options", [{"fullgraph": False}, {"fullgraph": True}, {"dynamic": True}])
def test_an_operator_whose_rule_for_tracing_is_wrong_leaves_its_program(options: dict[str, bool]):
    torch.manual_seed(0)
    compiled: Any = compile_module(Mistraced(), backward=False, **options)
    x = torch.randn(5, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), compiled.session.eager(x))
    counting = compile_module(MistracedAndCounts(), backward=False, **options)
    with raises(MistracedOperatorError, "another shape", exact=False):
        counting(x)  # the buffer may have changed by now

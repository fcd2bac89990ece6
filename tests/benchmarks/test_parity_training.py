"""A training step beside eager's, with compilers that are right, slightly wrong, and give up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import parity
from benchmarks.models.reduced import REDUCED
from benchmarks.parity_training import Programs, training
from daceml.errors import CallError
from tests.support.golden import raises
from tests.support.sampling import sampled


def exact(module: nn.Module) -> Callable[..., Any]:
    return module


def programs(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> Programs:
    return Programs(forward={"kernel": 3}, backward={"kernel": 2, "aten": 1})


class Scaled(torch.autograd.Function):
    """The identity, whose gradient is a little too large."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> torch.Tensor:
        return given[0] * (1 + 1e-3)


def wrong_gradients(module: nn.Module) -> Callable[..., Any]:
    return lambda *inputs: Scaled.apply(module(*inputs))


def test_eager_itself_is_on_par_and_every_tensor_is_compared():
    seen = training(REDUCED["mbconv"], exact, programs, seeds=(0,))
    module = REDUCED["mbconv"].module()
    names = {tensor.name for tensor in seen.accuracy.tensors}
    assert names == {
        "seed0.output",
        "seed0.input0.grad",
        *(f"seed0.{name}.grad" for name, _ in module.named_parameters()),
        *(f"seed0.{name}" for name, _ in module.named_buffers()),
    }
    assert all(tensor.over_eager == 1.0 for tensor in seen.accuracy.tensors)
    assert all(bar.met for bar in seen.bars())


@pytest.mark.parametrize("name", sampled(["bert", "fcn8s", "bert_autocast", "efficientnet_b0"], "bert"))
def test_the_reference_has_the_masks_of_eager(name: str):
    """Without them, outputs would differ altogether: bfloat16 has errors of a few percent."""
    seen = training(REDUCED[name], exact, programs, seeds=(0,))
    errors = {tensor.name: tensor.eager_error for tensor in seen.accuracy.tensors}
    assert 0 < errors["seed0.output"] < (0.03 if name == "bert_autocast" else 1e-5)


def test_wrong_gradients_miss_a_bar_though_outputs_are_right():
    seen = training(REDUCED["mbconv"], wrong_gradients, programs, seeds=(0,))
    failed = {tensor.name for tensor in seen.accuracy.failures}
    assert "seed0.input0.grad" in failed
    assert not any(not name.endswith(".grad") for name in failed)
    assert [bar.met for bar in seen.bars()] == [False, False, True, True]


def test_a_gradient_that_is_missing_is_named():
    class Detached(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.module(x.detach())

    seen = training(REDUCED["mbconv"], Detached, programs, seeds=(0,))
    assert seen.missing == ("seed0.input0.grad",)
    assert [bar.met for bar in seen.bars()] == [True, True, True, False]


def test_nodes_left_to_onnxruntime_miss_a_bar_in_either_program():
    def left(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> Programs:
        return Programs(forward={"onnxruntime": 1}, backward={"onnxruntime": 2})

    seen = training(REDUCED["mish"], exact, left, seeds=(0,))
    assert seen.onnxruntime_nodes == 3
    assert [bar.met for bar in seen.bars()] == [True, True, False, True]


def test_a_network_that_is_left_to_pytorch_is_a_miss(capsys: pytest.CaptureFixture[str]):
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            y.retain_grad()  # a program has no such tensor
            return y

    def own(module: nn.Module) -> Callable[..., Any]:
        return parity.compile_for_training_with_daceml(Own())

    line = ["--mode", "training", "--models", "mish", "--quick", "--check"]
    assert parity.main(line, compile_training=own) == 1
    said = capsys.readouterr().out
    assert "mish" in said and "DML203" in said


def test_what_requires_no_gradient_has_no_backward_program():
    compiled = parity.compile_for_training_with_daceml(nn.Tanh())
    x = torch.ones(3)
    compiled(x)
    with raises(CallError, "backward"):
        parity.programs_of_daceml(compiled, (x,))


@pytest.mark.parametrize("name", sampled(["mish", "mbconv", "bert", "dlrm"], "mish", "bert"))
def test_a_replica_is_trained_like_eager(name: str):
    seen = training(
        REDUCED[name], parity.compile_for_training_with_daceml, parity.programs_of_daceml, seeds=(0,)
    )
    assert seen.accuracy.failures == ()
    assert seen.missing == ()
    assert seen.onnxruntime_nodes == 0
    assert seen.programs.backward

"""Random numbers from torch's generator, so that `torch.manual_seed` sets them."""

from __future__ import annotations

from typing import Any

from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.domain.dropout import dropped_share
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import Argument, AtenCall


def _filled(function: str, out: Output, *arguments: Argument) -> AtenCall:
    return AtenCall(function=function, arguments=(view(out), *arguments), writes=out.name, draws=True)


def _seeded(seed: float | None) -> str | None:
    return None if seed is None else "the node has a seed of its own"


@implements("DropoutMask", domain=DOMAIN, kind="aten", name="bernoulli")
def dropout_mask(ratio: Tensor, mask: Output) -> AtenCall:
    return _filled("bernoulli_of", mask, 1 - dropped_share(ratio))


def _uniform(output: Output, low: float, high: float) -> AtenCall:
    return _filled("uniform", output, float(low), float(high))


def _normal(output: Output, mean: float, scale: float) -> AtenCall:
    return _filled("normal", output, float(mean), float(scale))


@implements("RandomUniform", kind="aten", name="uniform", when=_seeded)
def random_uniform(
    output: Output, *, shape: Any, dtype: int = 1, high: float = 1.0, low: float = 0.0
) -> AtenCall:
    return _uniform(output, low, high)


@implements("RandomUniformLike", kind="aten", name="uniform", when=_seeded)
def random_uniform_like(
    input: Tensor, output: Output, *, dtype: int = 1, high: float = 1.0, low: float = 0.0
) -> AtenCall:
    return _uniform(output, low, high)


@implements("RandomNormal", kind="aten", name="normal", when=_seeded)
def random_normal(
    output: Output, *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0
) -> AtenCall:
    return _normal(output, mean, scale)


@implements("RandomNormalLike", kind="aten", name="normal", when=_seeded)
def random_normal_like(
    input: Tensor, output: Output, *, dtype: int = 1, mean: float = 0.0, scale: float = 1.0
) -> AtenCall:
    return _normal(output, mean, scale)


@implements("Exponential", domain=DOMAIN, kind="aten", name="exponential")
def exponential(like: Tensor, result: Output, *, rate: float) -> AtenCall:
    return _filled("exponential", result, float(rate))


@implements("Bernoulli", kind="aten", name="bernoulli", when=_seeded)
def bernoulli(input: Tensor, output: Output, *, dtype: int | None = None) -> AtenCall:
    return _filled("bernoulli", output, view(input))


def _dropout_refusal(
    data: Tensor, ratio: Tensor | None, training_mode: Tensor | None, seed: int | None
) -> str | None:
    if seed is not None:
        return "the node has a seed of its own"
    if training_mode is None or training_mode.value is None or not training_mode.value.all():
        return "it is not known to be in training"
    if ratio is not None and ratio.value is None:
        return "its ratio is not constant"
    return float_operands(data) or no_empty_operand(data)


@implements("Dropout", kind="aten", name="dropout", when=_dropout_refusal)
def dropout(
    data: Tensor, ratio: Tensor | None, training_mode: Tensor | None, output: Output, mask: Output | None
) -> AtenCall:
    return AtenCall(
        function="dropout",
        arguments=(None if mask is None else view(mask), view(data), dropped_share(ratio)),
        writes=output.name,
        more=() if mask is None else (mask.name,),
        fresh=True,
        draws=True,
    )


@implements("RandomIntegers", domain=DOMAIN, kind="aten", name="randint")
def random_integers(shape: Tensor, result: Output, *, low: int, high: int, dtype: int) -> AtenCall:
    return _filled("randint", result, low, high)


@implements("BernoulliLike", domain=DOMAIN, kind="aten", name="bernoulli")
def bernoulli_like(like: Tensor, result: Output, *, p: float) -> AtenCall:
    return _filled("bernoulli_of", result, float(p))


@implements("Permutation", domain=DOMAIN, kind="aten", name="randperm")
def permutation(result: Output, *, count: int) -> AtenCall:
    return AtenCall(function="randperm", arguments=(count,), writes=result.name, fresh=True, draws=True)


@implements("Draws", domain=DOMAIN, kind="aten", name="multinomial")
def draws(weights: Tensor, result: Output, *, count: int, replacement: int) -> AtenCall:
    return AtenCall(
        function="multinomial",
        arguments=(view(weights), count, bool(replacement)),
        writes=result.name,
        fresh=True,
        draws=True,
    )

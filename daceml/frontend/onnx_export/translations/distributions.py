"""Tensors of random numbers. No seed attribute: every call draws anew, as in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, UntranslatableError, translates
from daceml.frontend.onnx_export.translations.activation import leaky_relu
from daceml.frontend.onnx_export.translations.emit import (
    FLOATS,
    Value,
    array,
    broadcast,
    op,
    rank_of,
    result_dtype,
    sizes_of,
    typed,
    vector,
)
from daceml.frontend.onnx_export.translations.torch_kernels import kernel

Extent = int | Value
Kind = ir.DataType | int | None


def _dtype(dtype: Kind, default: ir.DataType | None = ir.DataType.FLOAT) -> ir.DataType:
    kind = result_dtype(dtype, default) or ir.DataType.FLOAT
    if kind not in FLOATS:
        raise UntranslatableError(f"random numbers of type {kind}")
    return kind


def _moved(drawn: Value, factor: float, start: float) -> Value:
    """start + factor x numbers; a node's attributes would round both to float32."""
    if factor != 1:
        drawn = typed(op.Mul(drawn, float(factor)), drawn)
    return typed(op.Add(drawn, float(start)), drawn) if start else drawn


def _exact(dtype: ir.DataType, *numbers: float) -> bool:
    """Whether attributes, which are float32, are as good as the numbers for results of a type."""
    return dtype != ir.DataType.DOUBLE or all(float(np.float32(number)) == number for number in numbers)


def _drawn(operator: str, size: Sequence[Extent], dtype: ir.DataType, **attributes: float) -> Value:
    if all(isinstance(extent, int) for extent in size):
        return typed(getattr(op, operator)(shape=list(size), dtype=dtype, **attributes), dtype=dtype)
    zeros = op.ConstantOfShape(vector(size), value=ir.tensor([0.0], dtype=dtype))
    return getattr(op, f"{operator}Like")(
        typed(zeros, dtype=dtype, shape=[e if isinstance(e, int) else None for e in size]),
        dtype=dtype,
        **attributes,
    )


def _like(operator: str, self: Value, dtype: ir.DataType, **attributes: float) -> Value:
    return typed(getattr(op, f"{operator}Like")(self, dtype=dtype, **attributes), self, dtype=dtype)


@translates("aten.rand.default")
def rand(size: Sequence[Extent], *, dtype: Kind = None, **_: Any) -> Value:
    return _drawn("RandomUniform", size, _dtype(dtype), low=0.0, high=1.0)


@translates("aten.randn.default")
def randn(size: Sequence[Extent], *, dtype: Kind = None, **_: Any) -> Value:
    return _drawn("RandomNormal", size, _dtype(dtype), mean=0.0, scale=1.0)


@translates("aten.rand_like.default")
def rand_like(self: Value, *, dtype: Kind = None, **_: Any) -> Value:
    return _like("RandomUniform", self, _dtype(dtype, self.dtype), low=0.0, high=1.0)


@translates("aten.randn_like.default")
def randn_like(self: Value, *, dtype: Kind = None, **_: Any) -> Value:
    return _like("RandomNormal", self, _dtype(dtype, self.dtype), mean=0.0, scale=1.0)


@translates("aten.uniform.default")
def uniform(self: Value, from_: float = 0.0, to: float = 1.0, *, generator: Any = None) -> Value:
    return _uniform_like(self, float(from_), float(to))


def _uniform_like(self: Value, low: float, high: float) -> Value:
    kind = _dtype(None, self.dtype)
    if _exact(kind, low, high):
        return _like("RandomUniform", self, kind, low=low, high=high)
    return _moved(_like("RandomUniform", self, kind, low=0.0, high=1.0), high - low, low)


@translates("aten.normal_functional.default")
def normal(self: Value, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Value:
    kind = _dtype(None, self.dtype)
    if _exact(kind, mean, std):
        return _like("RandomNormal", self, kind, mean=float(mean), scale=float(std))
    return _moved(_like("RandomNormal", self, kind, mean=0.0, scale=1.0), std, mean)


@translates("aten.normal.float_float")
def normal_of(
    mean: float, std: float, size: Sequence[Extent], *, generator: Any = None, dtype: Kind = None, **_: Any
) -> Value:
    kind = _dtype(dtype)
    if _exact(kind, mean, std):
        return _drawn("RandomNormal", size, kind, mean=float(mean), scale=float(std))
    return _moved(_drawn("RandomNormal", size, kind, mean=0.0, scale=1.0), std, mean)


@translates("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor")
def normal_around(mean: Value | float, std: Value | float = 1.0, *, generator: Any = None) -> Value:
    """mean + std z, with z standard normal in their common shape; torch gives neither a gradient."""
    operands = [operand for operand in (mean, std) if isinstance(operand, Value)]
    shape = broadcast(*operands)
    if shape is None or any(sizes_of(operand) != shape for operand in operands):
        raise UntranslatableError("means and deviations of different shapes")
    z = _like("RandomNormal", operands[0], _dtype(None, operands[0].dtype), mean=0.0, scale=1.0)
    if isinstance(std, Value) or std != 1:
        z = typed(op.Mul(z, std), z)
    return kernel("StopGradient")(typed(op.Add(mean, z), z))


@translates("aten.exponential.default")
def exponential(self: Value, lambd: float = 1.0, *, generator: Any = None) -> Value:
    if _exact(_dtype(None, self.dtype), lambd):
        return kernel("Exponential")(self, rate=float(lambd))
    return _moved(typed(kernel("Exponential")(self, rate=1.0), self), 1 / lambd, 0.0)


def _whole(low: Extent, high: Extent, shape: Value, kind: ir.DataType) -> Value:
    if not isinstance(low, int) or not isinstance(high, int):
        raise UnsupportedError("whole random numbers up to a symbolic bound")
    return kernel("RandomIntegers")(shape, low=low, high=high, dtype=int(kind))


@translates("aten.randint.default")
def randint(high: Extent, size: Sequence[Extent], *, dtype: Kind = None, **_: Any) -> Value:
    return randint_from(0, high, size, dtype=dtype)


@translates("aten.randint.low")
def randint_from(low: Extent, high: Extent, size: Sequence[Extent], *, dtype: Kind = None, **_: Any) -> Value:
    sizes = vector(size)
    if not isinstance(sizes, Value):
        sizes = array(np.array(sizes, dtype=np.int64), ir.DataType.INT64)
    return _whole(low, high, sizes, result_dtype(dtype, ir.DataType.INT64) or ir.DataType.INT64)


@translates("aten.randint_like.default")
def randint_like(self: Value, high: Extent, *, dtype: Kind = None, **_: Any) -> Value:
    return randint_like_from(self, 0, high, dtype=dtype)


@translates("aten.randint_like.low_dtype")
def randint_like_from(self: Value, low: Extent, high: Extent, *, dtype: Kind = None, **_: Any) -> Value:
    sizes = typed(op.Shape(self), dtype=ir.DataType.INT64, shape=(rank_of(self),))
    return _whole(low, high, sizes, result_dtype(dtype, self.dtype) or ir.DataType.INT64)


@translates("aten.bernoulli.default")
def bernoulli(self: Value, *, generator: Any = None) -> Value:
    return op.Bernoulli(self)


@translates("aten.bernoulli.p")
def bernoulli_p(self: Value, p: float, *, generator: Any = None) -> Value:
    """Draws with one probability, in the shape of `self`, whose numbers do not matter."""
    return kernel("BernoulliLike")(self, p=float(p))


@translates("aten.bernoulli.Tensor")
def bernoulli_of(self: Value, p: Value, *, generator: Any = None) -> Value:
    if sizes_of(p) != sizes_of(self):
        raise UntranslatableError("probabilities of another shape than the result")
    return op.Bernoulli(p, dtype=None if self.dtype == p.dtype else self.dtype)


@translates("aten.geometric.default", "aten.cauchy.default")
def transformed(self: Value, *_: Any, **__: Any) -> Value:
    """torch transforms uniform numbers of its own kind; other formulas give other numbers."""
    raise UnsupportedError("random numbers of a geometric or Cauchy distribution")


@translates("aten.rrelu.default")
def rrelu(
    self: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Value:
    """x above zero; below, x times a number from [lower, upper], its own in training, their middle else."""
    if not training:
        return leaky_relu(self, (lower + upper) / 2)
    slopes = _uniform_like(self, float(lower), float(upper))
    positive = typed(op.Greater(self, 0.0), self, dtype=ir.DataType.BOOL)
    return op.Where(positive, self, typed(op.Mul(self, slopes), self))


@translates("aten.multinomial.default")
def multinomial(self: Value, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Value:
    return kernel("Draws")(self, count=num_samples, replacement=int(replacement))


@translates("aten.randperm.default")
def randperm(n: Extent, *, dtype: Kind = None, **_: Any) -> Value:
    if not isinstance(n, int):
        raise UnsupportedError("a random permutation of a symbolic size")
    kind = result_dtype(dtype, ir.DataType.INT64)
    drawn = kernel("Permutation")(count=n)
    return (
        drawn
        if kind == ir.DataType.INT64
        else op.Cast(typed(drawn, dtype=ir.DataType.INT64, shape=(n,)), to=kind)
    )

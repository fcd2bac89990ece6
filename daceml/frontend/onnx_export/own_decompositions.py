"""Operators by other operators, where torch's decompositions or kernels lack eager's derivatives.

Losses: the slope of a branch that is not taken must be finite, as an infinity times 0 is NaN.
Writes into complex tensors: autograd knows the in-place operators alone, and a program has functional ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_MEAN, _SUM = 1, 2


def _reduced(loss: Tensor, reduction: int, dtype: torch.dtype) -> Tensor:
    if reduction == _MEAN:
        loss = loss.mean()
    elif reduction == _SUM:
        loss = loss.sum()
    return loss.to(dtype)


def _apart(self: Tensor, target: Tensor) -> Tensor:
    """How far two tensors are apart; of half types in float32."""
    wide = [x.float() if x.dtype in _HALF else x for x in (self, target)]
    return (wide[0] - wide[1]).abs()


def huber_loss(self: Tensor, target: Tensor, reduction: int = _MEAN, delta: float = 1.0) -> Tensor:
    """Half of the square up to `delta`, and a line of its slope beyond."""
    apart = _apart(self, target)
    if math.isinf(delta):  # nothing is far
        return _reduced(0.5 * apart * apart, reduction, torch.result_type(self, target))
    far = apart > delta  # NaN is near: its slope is NaN
    near = torch.where(far, delta, apart)
    loss = torch.where(far, delta * (apart - 0.5 * delta), 0.5 * near * near)
    return _reduced(loss, reduction, torch.result_type(self, target))


def smooth_l1_loss(self: Tensor, target: Tensor, reduction: int = _MEAN, beta: float = 1.0) -> Tensor:
    """The Huber loss divided by `beta`; the distance where that is 0."""
    apart = _apart(self, target)
    if beta > 0:
        far = apart >= beta
        near = torch.where(far, beta, apart)
        apart = torch.where(far, apart - 0.5 * beta, 0.5 * near * near / beta)
    return _reduced(apart, reduction, torch.result_type(self, target))


def _copy(whole: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(whole.dtype).expand(whole.shape) if whole.is_complex() else NotImplemented


def _through_parts(scatter: OpOverload) -> Callable[..., Tensor]:
    """A write into a complex tensor as the same write of real and imaginary parts."""

    def rule(whole: Tensor, source: Tensor, *places: int, **named: int) -> Tensor:
        if not whole.is_complex():
            return NotImplemented
        formals = [argument.name for argument in scatter._schema.arguments[2:]]  # pyright: ignore[reportPrivateUsage]
        given = {**dict(zip(formals, places, strict=False)), **named}
        dims = {name: given.get(name, default) for name, default in _DIMENSIONS.items() if name in formals}
        given |= {name: dim % whole.ndim for name, dim in dims.items()}
        parts, written = (torch.view_as_real(t.to(whole.dtype)) for t in (whole, source))
        if "dim2" in dims:  # a diagonal comes after the other dimensions
            written = written.movedim(-1, -2)
        return torch.view_as_complex(scatter(parts, written, **given))

    return rule


_DIMENSIONS = {"dim": 0, "dim1": 0, "dim2": 1}
"""Arguments that count dimensions, some from the end, and their defaults."""

_SCATTERS = (_aten.slice_scatter.default, _aten.select_scatter.default, _aten.diagonal_scatter.default)

COMPLEX_WRITES: dict[Any, Callable[..., Any]] = {
    _aten.copy.default: _copy,
    **{scatter: _through_parts(scatter) for scatter in _SCATTERS},
}

OWN: dict[Any, Callable[..., Any]] = {
    _aten.huber_loss.default: huber_loss,
    _aten.smooth_l1_loss.default: smooth_l1_loss,
    **COMPLEX_WRITES,
}

"""ONNX operators on weights that do not change any more, computed once, when a program is bound.

Each takes the values of its operands and a record whose numbers begin with the element type (ONNX's code) and
the shape of its result. What rounds is computed in float64 and rounded once to that type; what only moves
elements keeps their bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from daceml.runtime.records.manifest import PreparedRecord

Sources = tuple[torch.Tensor | None, ...]
Function = Callable[[Sources, PreparedRecord], torch.Tensor]
# `onnx.TensorProto.DataType`
_TYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}


def _rounded(function: Callable[..., torch.Tensor]) -> Function:
    """An operator on wide operands, and the rest of a record's numbers and reals."""

    def run(sources: Sources, record: PreparedRecord) -> torch.Tensor:
        return _finished(function(*map(_wide, sources), *_arguments(record)), record)

    return run


def _moved(function: Callable[..., torch.Tensor]) -> Function:
    """An operator that rounds nothing."""

    def run(sources: Sources, record: PreparedRecord) -> torch.Tensor:
        return _finished(function(*sources, *_arguments(record)), record)

    return run


def _arguments(record: PreparedRecord) -> list[Any]:
    return [*map(tuple, record.numbers[2:]), *record.reals]


def _finished(found: torch.Tensor, record: PreparedRecord) -> torch.Tensor:
    (code,), shape = record.numbers[:2]
    return found.to(_TYPES[code]).reshape(tuple(shape)).contiguous()


def _wide(x: torch.Tensor | None) -> torch.Tensor | None:
    return x if x is None or not x.is_floating_point() else x.double()


def _literal(_: Sources, record: PreparedRecord) -> torch.Tensor:
    """A constant, given by its bytes."""
    (code,), shape, data = record.numbers
    return torch.frombuffer(bytearray(data), dtype=_TYPES[code]).reshape(tuple(shape)).clone()


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _slice(x: torch.Tensor, *along: tuple[int, int, int]) -> torch.Tensor:
    """Start, stop and step of each dimension; steps are positive."""
    return x[tuple(slice(*bounds) for bounds in along)]


def _gather(x: torch.Tensor, positions: torch.Tensor, how: tuple[int, int]) -> torch.Tensor:
    """The axis, and whether negative positions count from the end."""
    axis, from_end = how
    rows = positions.reshape(-1).long()
    return x.index_select(axis, torch.where(rows < 0, rows + x.shape[axis], rows) if from_end else rows)


def _gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    turned: tuple[int, int],
    alpha: float,
    beta: float,
) -> torch.Tensor:
    product = alpha * ((a.T if turned[0] else a) @ (b.T if turned[1] else b))
    return product if c is None else product + beta * c


def _clip(x: torch.Tensor, low: torch.Tensor | None, high: torch.Tensor | None) -> torch.Tensor:
    return x if low is None and high is None else torch.clamp(x, low, high)


def _mean(x: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    return x.sum(axes) / math.prod(x.shape[axis] for axis in axes)


OPERATORS: dict[str, Function] = {
    "literal": _literal,
    "Abs": _rounded(torch.abs),
    "Add": _rounded(torch.add),
    "And": _rounded(torch.logical_and),
    "Cast": _moved(lambda x: x),
    "Ceil": _rounded(torch.ceil),
    "Clip": _rounded(_clip),
    "Concat": lambda sources, record: _finished(torch.cat(sources, record.numbers[2][0]), record),  # pyright: ignore
    "Cos": _rounded(torch.cos),
    "Div": _rounded(torch.div),
    "Equal": _rounded(torch.eq),
    "Erf": _rounded(torch.erf),
    "Exp": _rounded(torch.exp),
    "Flatten": _moved(lambda x: x),
    "Floor": _rounded(torch.floor),
    "Gather": _moved(_gather),
    "Gemm": _rounded(_gemm),
    "Greater": _rounded(torch.gt),
    "Identity": _moved(lambda x: x),
    "Less": _rounded(torch.lt),
    "Log": _rounded(torch.log),
    "LogSoftmax": _rounded(lambda x, axis: torch.log_softmax(x, axis[0])),
    "MatMul": _rounded(torch.matmul),
    "Max": _rounded(torch.maximum),
    "Min": _rounded(torch.minimum),
    "Mul": _rounded(torch.mul),
    "Neg": _rounded(torch.neg),
    "Not": _rounded(torch.logical_not),
    "Or": _rounded(torch.logical_or),
    "Pow": _rounded(torch.pow),
    "Reciprocal": _rounded(torch.reciprocal),
    "ReduceL2": _rounded(lambda x, axes: torch.sqrt((x * x).sum(axes))),
    "ReduceMax": _rounded(torch.amax),
    "ReduceMean": _rounded(_mean),
    "ReduceMin": _rounded(torch.amin),
    "ReduceSum": _rounded(torch.sum),
    "ReduceSumSquare": _rounded(lambda x, axes: (x * x).sum(axes)),
    "Relu": _rounded(functional.relu),
    "Reshape": _moved(lambda x: x),
    "Round": _rounded(torch.round),
    "Sigmoid": _rounded(torch.sigmoid),
    "Sin": _rounded(torch.sin),
    "Slice": _moved(_slice),
    "Softmax": _rounded(lambda x, axis: torch.softmax(x, axis[0])),
    "Softplus": _rounded(_softplus),
    "Sqrt": _rounded(torch.sqrt),
    "Squeeze": _moved(lambda x: x),
    "Sub": _rounded(torch.sub),
    "Tanh": _rounded(torch.tanh),
    "Transpose": _moved(lambda x, order: x.permute(order)),
    "Unsqueeze": _moved(lambda x: x),
    "Where": _moved(torch.where),
}
"""What `daceml.transformations.coarse.frozen_folding` may ask for."""

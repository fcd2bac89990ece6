"""Half precision as torch computes it: in float32, rounded once for each ATen operator.

One ATen operator may be several ONNX operators, and a Python factor or divisor of a half tensor is a float32
for torch where ONNX wants a constant of the tensor's type. Both would round more often than torch does.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.translations import Translation
from daceml.frontend.onnx_export.translations.emit import Value, broadcast, cast, op, sizes_of, typed
from daceml.onnx_ops.schema.schema import exact_float

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def rounds_once(translation: Translation) -> Translation:
    """A translation to several operators, whose half operands are widened and whose result is rounded.

    One whose result has not the shape of the operands, or that has several, says their shapes.
    """

    @functools.wraps(translation)
    def translate(*args: Any, **kwargs: Any) -> Any:
        kind = _half(args)
        return translation(*args, **kwargs) if kind is None else _widened(translation, kind, args, kwargs)

    return translate


def keeps_numbers(translation: Translation) -> Translation:
    """A translation whose Python numbers are not rounded to the half type of the tensor beside them."""

    @functools.wraps(translation)
    def translate(*args: Any, **kwargs: Any) -> Value:
        kind = _half(args)
        given = (*args, *kwargs.values())
        numbers = [float(a) for a in given if isinstance(a, float | int) and not isinstance(a, bool)]
        if kind is None or all(_holds(kind, number) for number in numbers):
            return translation(*args, **kwargs)
        return _widened(translation, kind, args, kwargs)

    return translate


def attributes_hold(like: Value, *numbers: float) -> bool:
    """Whether attributes, which are float32, hold numbers as a tensor's type needs them."""
    return like.dtype != ir.DataType.DOUBLE or all(exact_float(number) == number for number in numbers)


def _half(args: tuple[Any, ...]) -> ir.DataType | None:
    """The half type that all tensors among the operands have."""
    kinds = {a.dtype for a in args if isinstance(a, Value)}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind in HALVES else None


def _holds(kind: ir.DataType, number: float) -> bool:
    return float(np.float32(number)) == float(np.asarray(number).astype(kind.numpy()))


def _widened(translation: Translation, kind: ir.DataType, args: tuple[Any, ...], kwargs: Any) -> Any:
    tensors = [a for a in args if isinstance(a, Value)]
    wide = translation(*(cast(a, ir.DataType.FLOAT) if isinstance(a, Value) else a for a in args), **kwargs)
    if isinstance(wide, tuple):
        return tuple(op.Cast(part, to=kind) for part in wide)
    shape = broadcast(*tensors) if wide.shape is None else sizes_of(wide)
    return op.Cast(typed(wide, dtype=ir.DataType.FLOAT, shape=shape), to=kind)

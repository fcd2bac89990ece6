"""Symbolic sizes, and whole numbers computed from them."""

from __future__ import annotations

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import translates
from daceml.frontend.onnx_export.translations.emit import Value, op, rank_of, sizes_of, typed

_INT64 = ir.DataType.INT64


@translates("aten.sym_size.int")
def sym_size(self: Value, dim: int) -> Value:
    axis = dim % rank_of(self)
    length = typed(op.Shape(self, start=axis, end=axis + 1), dtype=_INT64, shape=(1,))
    size = op.Squeeze(length, [0])
    size.meta["daceml.size"] = sizes_of(self)[axis]
    size.meta["daceml.length"] = length
    return size


@translates("aten.sym_numel.default")
def sym_numel(self: Value) -> Value:
    return op.Size(self)


@translates("_operator::floordiv")
def floordiv(self: int | Value, other: int | Value) -> Value:
    """Rounds down as Python does: `-(-n // 2)` is the usual way to round up. ONNX divides towards zero."""
    rest = typed(op.Mod(self, other), dtype=_INT64, shape=())
    return op.Div(typed(op.Sub(self, rest), dtype=_INT64, shape=()), other)

"""Local ONNX functions of the domain "daceml": one node each, with a body in standard operators.

The body reads the same in opsets 18 to 23; the public exporter inlines it into a model stamped 18 first.
"""

# onnxscript types the operators for its scripts in part only.
# pyright: reportArgumentType=false, reportReturnType=false

from __future__ import annotations

from onnxscript import FLOAT, INT64, script
from onnxscript import opset18 as op
from onnxscript.values import Opset

DACEML = Opset("daceml", 1)


@script(DACEML, default_opset=op)
def EmbeddingBagSum(weight: FLOAT, indices: INT64, offsets: INT64) -> FLOAT:  # noqa: N802
    """weight: [V, D], indices: [T], offsets: [B] -> sums of rows: [B, D]; empty bags are zero."""
    count = op.Shape(indices)
    zeros = op.Expand(op.Constant(value_int=0), op.Add(count, op.Constant(value_int=1)))
    ones = op.Expand(op.Constant(value_int=1), op.Shape(offsets))
    marks = op.ScatterElements(zeros, offsets, ones, axis=0, reduction="add")
    start = op.Constant(value_ints=[0])
    running = op.Slice(op.CumSum(marks, op.Constant(value_int=0)), start, count, start)
    bags = op.Unsqueeze(op.Sub(running, op.Constant(value_int=1)), op.Constant(value_ints=[1]))
    shape = op.Concat(op.Shape(offsets), op.Shape(weight, start=1), axis=0)
    nothing = op.Expand(op.CastLike(op.Constant(value_float=0.0), weight), shape)
    return op.ScatterND(nothing, bags, op.Gather(weight, indices), reduction="add")


@script(DACEML, default_opset=op)
def SegmentSum(rows: FLOAT, offsets: INT64) -> FLOAT:  # noqa: N802
    """rows: [T, D], offsets: [B] -> sums of consecutive rows: [B, D]; empty segments are zero."""
    count = op.Shape(rows, start=0, end=1)
    zeros = op.Expand(op.Constant(value_int=0), op.Add(count, op.Constant(value_int=1)))
    ones = op.Expand(op.Constant(value_int=1), op.Shape(offsets))
    marks = op.ScatterElements(zeros, offsets, ones, axis=0, reduction="add")
    start = op.Constant(value_ints=[0])
    running = op.Slice(op.CumSum(marks, op.Constant(value_int=0)), start, count, start)
    segments = op.Unsqueeze(op.Sub(running, op.Constant(value_int=1)), op.Constant(value_ints=[1]))
    shape = op.Concat(op.Shape(offsets), op.Shape(rows, start=1), axis=0)
    nothing = op.Expand(op.CastLike(op.Constant(value_float=0.0), rows), shape)
    return op.ScatterND(nothing, segments, rows, reduction="add")


@script(DACEML, default_opset=op)
def SegmentMax(rows: FLOAT, offsets: INT64) -> FLOAT:  # noqa: N802
    """rows: [T, D], offsets: [B] -> maxima of consecutive rows: [B, D]; empty segments are -inf."""
    count = op.Shape(rows, start=0, end=1)
    zeros = op.Expand(op.Constant(value_int=0), op.Add(count, op.Constant(value_int=1)))
    ones = op.Expand(op.Constant(value_int=1), op.Shape(offsets))
    marks = op.ScatterElements(zeros, offsets, ones, axis=0, reduction="add")
    start = op.Constant(value_ints=[0])
    running = op.Slice(op.CumSum(marks, op.Constant(value_int=0)), start, count, start)
    segments = op.Unsqueeze(op.Sub(running, op.Constant(value_int=1)), op.Constant(value_ints=[1]))
    shape = op.Concat(op.Shape(offsets), op.Shape(rows, start=1), axis=0)
    nothing = op.Expand(op.CastLike(op.Constant(value_float=float("-inf")), rows), shape)
    return op.ScatterND(nothing, segments, rows, reduction="max")

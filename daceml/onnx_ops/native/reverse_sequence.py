"""The first elements of each sequence of a batch in reverse order."""

from __future__ import annotations

import dace

from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import Position, axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.sdfg.scalar import Index, Scalar, index_value


@implements("ReverseSequence")
def reverse_sequence(
    input: Tensor, sequence_lens: Tensor, Y: Output, *, batch_axis: int = 1, time_axis: int = 0
) -> None:
    batch, time = axis_of(batch_axis, input.rank), axis_of(time_axis, input.rank)
    check_positions(sequence_lens, input.shape[time] + 1, lowest=0)

    def element(*index: Index) -> Scalar:
        length = sequence_lens[(index[batch],)].astype(dace.int64)
        place = index_value(index[time])
        source: list[Position] = list(index)
        source[time] = where(place < length, length - 1 - place, place)
        return input[tuple(source)]

    Y[:] = compute(Y.shape, element)

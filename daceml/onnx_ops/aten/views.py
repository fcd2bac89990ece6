"""Torch views over operands, and the refusals that several vendor kernels share."""

from __future__ import annotations

from collections.abc import Sequence

import dace

from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import TensorView
from daceml.sdfg.sizes import Size, product, row_major, size

# Domain of backward operators (`daceml.autodiff.vjp`)
GRADIENTS = "daceml.grad"

_FLOATS = (dace.float32, dace.float64, dace.float16, dace.bfloat16)


def view(
    tensor: Tensor | Output, sizes: Sequence[Size] | None = None, strides: Sequence[Size] | None = None
) -> TensorView:
    """A view of a whole operand: its own shape, another one of as many elements, or explicit strides."""
    chosen = tuple(size(s) for s in (tensor.shape if sizes is None else sizes))
    name = tensor.name if isinstance(tensor, Output) else tensor.array
    assert name is not None, "operands of a node are arrays"
    return TensorView(
        array=name, sizes=chosen, strides=tuple(strides) if strides is not None else row_major(chosen)
    )


def bytes_of(*tensors: Tensor | Output) -> Size:
    """Bytes of whole operands."""
    return sum((product(size(s) for s in t.shape) * t.dtype.bytes for t in tensors), start=0)


def float_operands(*tensors: Tensor | Output | None) -> str | None:
    """Vendor kernels are for floating-point numbers, all of one type."""
    types = {t.dtype for t in tensors if t is not None}
    if len(types) > 1:
        return f"its operands differ in type: {', '.join(sorted(t.to_string() for t in types))}"
    if not types <= set(_FLOATS):
        return f"torch has no vendor kernel for {next(iter(types)).to_string()}"
    return None


def no_empty_operand(*tensors: Tensor | None) -> str | None:
    """An empty operand is a loop that does nothing; vendor kernels have cases for it that differ."""
    if any(isinstance(s, int) and s == 0 for t in tensors if t is not None for s in t.shape):
        return "an operand is empty"
    return None

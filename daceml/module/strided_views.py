"""Views of a tensor by sizes, strides and offset, also in another element type of the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from daceml.frontend.onnx_export.memory_views import expression

_negated: Any = torch.ops.aten._neg_view.default
_HALF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def start_in(dtype: torch.dtype, tensor: torch.Tensor) -> Any:
    """Where a tensor begins in its memory, in elements of a type; None where it begins within one."""
    start = expression(tensor.storage_offset()) * tensor.element_size()
    if isinstance(start, int) and start % dtype.itemsize:
        return None
    return start // dtype.itemsize if isinstance(start, int) else start / dtype.itemsize


def strided(
    tensor: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """A view of a tensor's memory; gradients flow through it as far as torch has them.

    Args:
        dtype: of the view.
        shape, strides, offset: in elements of the view; the offset counts from the tensor's first element.
    """
    tensor = _as_stored(tensor)
    if dtype == tensor.dtype:
        return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)
    start = start_in(dtype, tensor) + offset
    if _HALF.get(tensor.dtype) == dtype:
        return torch.view_as_real(tensor).as_strided(shape, strides, start)
    if _HALF.get(dtype) == tensor.dtype:
        pairs = tensor.as_strided([*shape, 2], [*(2 * step for step in strides), 1], 2 * start)
        return torch.view_as_complex(pairs)
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((elements,), (1,), 0).view(dtype).as_strided(shape, strides, start)


def _as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without the marks that its numbers are conjugates or negatives of what memory holds."""
    tensor = tensor.conj() if tensor.is_conj() else tensor
    return _negated(tensor) if tensor.is_neg() else tensor


def marked(tensor: torch.Tensor, *, conjugated: bool, negated: bool) -> torch.Tensor:
    """A view whose numbers are conjugates or negatives of what memory holds."""
    tensor = tensor.conj() if conjugated else tensor
    return _negated(tensor) if negated else tensor

"""Dropout in training: the mask that was drawn, and the scale that keeps the mean."""

from __future__ import annotations

import dace
import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.dropout import keeping_scale
from daceml.onnx_ops.tracing.tensor import Tensor
from daceml.sdfg.scalar import compute_type


def _in_training(ratio: Tensor | None, training_mode: Tensor | None) -> str | None:
    if training_mode is None or training_mode.value is None or not np.all(training_mode.value):
        return "it is not known to be in training"
    return "its ratio is not constant" if ratio is not None and ratio.value is None else None


@vjp(
    "Dropout",
    wrt="data",
    name="DropoutGrad",
    when=_in_training,
    extra={"mask": lambda data: (data.shape, dace.bool_)},
)
def dropout_vjp(ratio: Tensor | None, mask: Tensor, doutput: Tensor, *, seed: int | None = None) -> Tensor:
    """dX = dY mask / (1 - ratio); a product, so that what is not finite stays so where it was dropped."""
    return doutput * (mask.astype(compute_type(doutput.dtype)) * keeping_scale(ratio))

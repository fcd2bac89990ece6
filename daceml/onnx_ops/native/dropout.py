"""Dropout where nothing is dropped, in inference and with ratio 0, and the product with a mask."""

from __future__ import annotations

import numpy as np

from daceml.onnx_ops.domain.dropout import DOMAIN, keeping_scale
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import compute_type

# Before this version a node says by `is_test` that it is no training.
_INFERENCE = 7


def _certainly(tensor: Tensor | None, value: float) -> bool:
    return tensor is not None and tensor.value is not None and bool(np.all(tensor.value == value))


@implements("Dropout")
def dropout(
    data: Tensor,
    ratio: Tensor | None,
    training_mode: Tensor | None,
    output: Output,
    mask: Output | None,
    *,
    seed: int | None = None,
    is_test: int = 0,
    consumed_inputs: object = None,
    since_version: int,
) -> None:
    inference = training_mode is None or _certainly(training_mode, 0)
    if since_version < _INFERENCE:
        inference = bool(is_test)
    if not inference and not _certainly(ratio, 0):
        reason = (
            "training_mode is not constant"
            if training_mode is not None and training_mode.value is None
            else ""
        )
        raise Refused(reason or "it draws random numbers in training")
    output[:] = data
    if mask is not None:
        mask[:] = 1


@implements("DropoutProduct", domain=DOMAIN)
def dropout_product(data: Tensor, mask: Tensor, ratio: Tensor, output: Output) -> None:
    output[:] = data * (mask.astype(compute_type(data.dtype)) * keeping_scale(ratio))

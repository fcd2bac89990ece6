"""Normalisations with their statistics, and their gradients, by torch's kernels."""

from __future__ import annotations

import dace

from daceml.onnx_ops.aten.gradients import gradient_call, handed
from daceml.onnx_ops.aten.views import GRADIENTS, bytes_of, float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.lanes import FEWEST_LANES
from daceml.sdfg.sizes import product, size


def _plain(*tensors: Tensor | Output | None) -> str | None:
    """torch's kernels keep the statistics of half types in those types: loops of our own are exact."""
    present = [t for t in tensors if t is not None]
    if any(t.dtype not in (dace.float32, dace.float64) for t in present):
        return "torch keeps the statistics of a half type in that type"
    return no_empty_operand(*present) or float_operands(*present)


def _batch_refusal(
    X: Tensor,
    scale: Tensor,
    B: Tensor,
    input_mean: Tensor,
    input_var: Tensor,
    Y: Output | None,
    running_mean: Output | None,
    running_var: Output | None,
    training_mode: int,
) -> str | None:
    if not training_mode:
        return "in inference a batch normalisation is a scale and a shift"
    if (running_mean is None) != (running_var is None):
        return "one of the running statistics is wanted without the other"
    if Y is None:
        return "only statistics are wanted"
    return _plain(X, scale, B, input_mean, input_var) or _loops_are_better(X)


def _loops_are_better(X: Tensor) -> str | None:
    """Why generated loops are quicker than torch's kernels, if they are.

    Source: benchmarks.blocks, batch norm with residual and relu: 41 ms for a step instead of 70.
    """
    row = X.shape[-1]
    if X.rank > 2 and isinstance(row, int) and row >= FEWEST_LANES:
        return f"rows of {row} elements: generated loops take in what is elementwise around them"
    return None


@implements(
    "BatchNormalizationSaving",
    domain="daceml",
    kind="aten",
    name="batch_norm",
    when=_batch_refusal,
    devices=("cpu",),  # running statistics are corrected where the processor can read them
)
def batch_normalization(
    X: Tensor,
    scale: Tensor,
    B: Tensor,
    input_mean: Tensor,
    input_var: Tensor,
    Y: Output,
    running_mean: Output | None,
    running_var: Output | None,
    Mean: Output | None,
    InvStdDev: Output | None,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> AtenCall:
    """`aten::native_batch_norm`, and running statistics by ONNX's rule."""
    running, saved = (running_mean, running_var), (Mean, InvStdDev)
    return AtenCall(
        function="batch_norm",
        arguments=(
            *(None if r is None else view(r) for r in running),
            *map(handed, saved),
            *(view(t) for t in (X, scale, B, input_mean, input_var)),
            float(momentum),
            float(epsilon),
        ),
        writes=Y.name,
        more=tuple(r.name for r in (*running, *saved) if r is not None),
        fresh=True,
        flops=6 * X.size,
    )


def _batch_gradient_refusal(X: Tensor, scale: Tensor, dY: Tensor, Mean: Tensor) -> str | None:
    return _gradient_refusal(X, scale, dY, Mean) or _loops_are_better(X)


def _gradient_refusal(X: Tensor, scale: Tensor, dY: Tensor, Mean: Tensor) -> str | None:
    return _plain(X, scale, dY, Mean)


@implements(
    "BatchNormalizationSavingGrad",
    domain=GRADIENTS,
    kind="aten",
    name="batch_norm_backward",
    when=_batch_gradient_refusal,
)
def batch_normalization_gradient(
    X: Tensor,
    scale: Tensor,
    Mean: Tensor,
    InvStdDev: Tensor,
    dY: Tensor,
    dX: Output | None,
    dscale: Output | None,
    dB: Output | None,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 1,
) -> AtenCall:
    return gradient_call(
        "batch_norm_backward",
        (dX, dscale, dB),
        *(view(t) for t in (dY, X, Mean, InvStdDev, scale)),
        float(epsilon),
        flops=8 * X.size,
        temporary_bytes=bytes_of(X),  # torch makes a second gradient of X and drops it
    )


@implements(
    "GroupNormalizationSavingGrad",
    domain=GRADIENTS,
    kind="aten",
    name="group_norm_backward",
    when=_gradient_refusal,
)
def group_normalization_gradient(
    X: Tensor,
    scale: Tensor,
    Mean: Tensor,
    InvStdDev: Tensor,
    dY: Tensor,
    dX: Output | None,
    dscale: Output | None,
    dbias: Output | None,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> AtenCall:
    return gradient_call(
        "group_norm_backward",
        (dX, dscale, dbias),
        *(view(t) for t in (dY, X, Mean, InvStdDev, scale)),
        num_groups,
        flops=8 * X.size,
    )


# Rows that a loop goes through in chunks with the sums of their columns in the first cache. Measured with
# float32 on one core: half the time of torch's kernel for 64 MB, as long for 16 MB; 1.5 times as long where
# rows have 2,048 elements or more.
_SHORTEST, _LONGEST, _FEWEST = 16, 1024, 128


def _rows_refusal(
    X: Tensor, Scale: Tensor, dY: Tensor, Mean: Tensor, dB: Output | None, axis: int
) -> str | None:
    rows = X.shape[axis_of(axis, X.rank) :]
    length, count = product(map(size, rows)), product(map(size, X.shape[: axis_of(axis, X.rank)]))
    many = not isinstance(count, int) or count >= _FEWEST
    if X.dtype == dace.float32 and isinstance(length, int) and _SHORTEST <= length <= _LONGEST and many:
        return f"a loop over rows of {length} elements also adds up their columns"
    for what, operand in (("scale", Scale), ("bias", dB)):
        if operand is not None and (operand.rank != len(rows) or not all(map(same, operand.shape, rows))):
            return f"a {what} of shape {list(operand.shape)} is broadcast along rows of {list(rows)}"
    return _plain(X, Scale, dY, Mean)


@implements(
    "LayerNormalizationGrad",
    "LayerNormalizationSavingGrad",
    domain=GRADIENTS,
    kind="aten",
    name="layer_norm_backward",
    when=_rows_refusal,
)
def layer_normalization_gradient(
    X: Tensor,
    Scale: Tensor,
    Mean: Tensor,
    InvStdDev: Tensor,
    dY: Tensor,
    dX: Output | None,
    dScale: Output | None,
    dB: Output | None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> AtenCall:
    return gradient_call(
        "layer_norm_backward",
        (dX, dScale, dB),
        *(view(t) for t in (dY, X, Mean, InvStdDev, Scale)),
        flops=8 * X.size,
    )

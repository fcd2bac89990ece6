"""What a convolution of a training step gains with its channels innermost."""

from __future__ import annotations

from collections.abc import Sequence

import dace

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.sizes import Size, product
from daceml.transformations.rewriting.replacement import Value

# Forward and both gradients, nanoseconds for each element of operand and result, 2 cores, torch 2.13: windows
# of one element gain 0.6 to 1.2 (oneDNN then needs no order of its own), depthwise 0.5 to 0.8, and 1 to 4
# where windows are large
_POINTWISE_NS, _DEPTHWISE_NS, _LARGE_DEPTHWISE_NS = 0.6, 0.5, 1.0
_LARGE_WINDOW = 16
# A weight's elements beside those of operand and result, above which nothing is gained
_LARGEST_WEIGHT = 2
# Products of an element of the result or of the operand's gradient. Above, kernels for channels last round
# up to 5 times as much, and are no faster
_MOST_PRODUCTS = 512
# Forward and backward, for each element
_TRANSPOSE_NS = 2.0
_FEWEST_CHANNELS = 8


def convolution_gain_ns(node: ONNXNode, x: Value, w: Value, y: Value, *, always: bool) -> float | str:
    """Nanoseconds that a training step gains; or why the convolution stays as it is.

    Args:
        always: where it is possible, whatever the gain.
    """
    values = node.attribute_values()
    if len(x.shape) != 4:
        return f"it has {len(x.shape) - 2} spatial dimensions"
    if any(not isinstance(n, int) for n in (*x.shape[1:], *w.shape, *y.shape[1:])):
        return "a size other than the batch is symbolic"
    if 0 in (*x.shape, *w.shape, *y.shape):
        return "an operand is empty"
    if (values.get("auto_pad") or "NOTSET") not in ("NOTSET", "VALID"):
        return "its padding is not given as numbers"
    if always:
        return 0.0
    if x.dtype != dace.float32:
        return f"there are no measurements for {x.dtype.to_string()}"
    if 1 in (product(x.shape[2:]), product(y.shape[2:])):
        return "both orders have the same memory layout"
    batch = x.shape[0] if isinstance(x.shape[0], int) else 1
    window = int(product(w.shape[2:]))
    elements = batch * int(product(x.shape[1:])) + batch * int(product(y.shape[1:]))
    if w.shape[1] == 1 and w.shape[0] == x.shape[1] and x.shape[1] != 1:
        return elements * (_LARGE_DEPTHWISE_NS if window > _LARGE_WINDOW else _DEPTHWISE_NS)
    group = int(values.get("group") or 1)
    per_element = max(int(w.shape[1]), int(w.shape[0]) // group) * window
    if window > 1 and per_element > _MOST_PRODUCTS:
        return f"sums of {per_element} terms would be rounded more often, with no gain"
    if window > 1 or group > 1 or int(product(w.shape)) > _LARGEST_WEIGHT * elements:
        return 0.0
    return elements * _POINTWISE_NS


def transpose_cost_ns(shape: Sequence[Size]) -> float:
    """Nanoseconds that it costs to bring an image, and its gradient, into another order."""
    known = (n if isinstance(n, int) else 1 for n in shape)
    return _TRANSPOSE_NS * int(product(known))

"""Windows put back together: sums of overlapping columns, and maxima put back where they were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.onnx_ops.native.gather import check_positions, position
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.indexing import divide, flatten_index, unflatten_index
from daceml.onnx_ops.tracing.scatter import Place, scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal
from daceml.sdfg.sizes import product


@implements("Col2Im")
def columns_to_image(
    input: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    output: Output,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    """Each element of the image is the sum of what the blocks that cover it hold at its place."""
    if block_shape.value is None:
        raise Refused("block_shape is not constant")
    block = [int(b) for b in np.asarray(block_shape.value).reshape(-1)]
    space = len(block)
    steps, spread = strides or (1,) * space, dilations or (1,) * space
    before, after = (pads or (0,) * (2 * space))[:space], (pads or (0,) * (2 * space))[space:]
    image = output.shape[2:]
    counts = [
        (extent + b + a - d * (k - 1) - 1) // s + 1
        for extent, k, s, d, b, a in zip(image, block, steps, spread, before, after, strict=True)
    ]
    if not all(isinstance(n, int) for n in counts):
        raise Refused("the size of the image is symbolic")
    if divide(input.shape[1], product(block)) is None:
        raise Refused(f"{input.shape[1]} rows are not whole blocks of {block}")
    zero = literal(0, compute_type(input.dtype))

    def element(n: Index, c: Index, *place: Index) -> Scalar:
        def term(*k: Index) -> Scalar:
            found: list[Scalar] = []
            inside: Scalar | None = None
            for d in range(space):
                offset = index_value(place[d] + before[d] - k[d] * spread[d])
                at = offset // steps[d]
                holds = (offset % steps[d] == 0) & (at >= 0) & (at < counts[d])
                inside = holds if inside is None else inside & holds
                found.append(minimum(maximum(at, 0), counts[d] - 1))
            row = c * product(block) + flatten_index(k, block)
            assert inside is not None
            return where(inside, input[(n, row, flatten_index(found, counts))], zero)

        return sum_over(block, term)

    output[:] = compute(output.shape, element)


@implements("MaxUnpool")
def max_unpool(
    X: Tensor,
    I: Tensor,  # noqa: E741  (as ONNX names it)
    output_shape: Tensor | None,
    output: Output,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    pooled = pooled_shape(X.shape, kernel_shape, pads, strides)
    if any(
        isinstance(a, int) and isinstance(b, int) and a > b for a, b in zip(pooled, output.shape, strict=True)
    ):
        raise Refused(f"output_shape {list(output.shape)} is smaller than the pooled image {list(pooled)}")
    check_positions(I, product(pooled))

    def along(d: int) -> Place:
        return lambda index: unflatten_index(position(I, index, product(pooled)), pooled)[d]

    scatter(output, full(output.shape, 0, output.dtype), X, [along(d) for d in range(X.rank)])


def pooled_shape(
    shape: Sequence[Index],
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[Index, ...]:
    """The image that was pooled, whose elements positions count; what output_shape adds lies behind it."""
    space = len(kernel_shape)
    steps, cut = strides or (1,) * space, pads or (0,) * (2 * space)
    return (
        *shape[:2],
        *(
            (extent - 1) * s - (cut[d] + cut[d + space]) + k
            for d, (extent, s, k) in enumerate(zip(shape[2:], steps, kernel_shape, strict=True))
        ),
    )

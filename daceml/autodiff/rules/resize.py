"""Resize: each dY goes back to the places it was interpolated from, one dimension after the other."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.resize import Resizing, resized_axes
from daceml.onnx_ops.native.resize_axes import ResizedAxis
from daceml.onnx_ops.tracing.scatter import scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.sdfg.scalar import Index, Scalar, compute_type


@vjp("Resize")
def resize_vjp(
    dY: Tensor,
    roi: Tensor | None,
    scales: Tensor | None,
    sizes: Tensor | None,
    dX: Output,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> None:
    """The transpose of the interpolation; it is linear, so that only sizes and regions matter."""
    how = Resizing(
        roi=roi,
        scales=scales,
        sizes=sizes,
        antialias=antialias,
        axes=axes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        mode=mode,
        nearest_mode=nearest_mode,
    )
    found = resized_axes(dX, dY, how)
    if isinstance(found, dict):
        dX[:] = _sums(dY, dX.shape, found)
        return
    result = dY
    for table in reversed(found):
        result = _returned(result, table, dX)
    dX[:] = result


def _sums(dY: Tensor, shape: Sequence[Index], factors: dict[int, int]) -> Tensor:
    """Sums over boxes: each element was repeated `factor` times along each of the axes."""

    def element(*index: Index) -> Scalar:
        def term(*k: Index) -> Scalar:
            place = list(index)
            for (axis, factor), offset in zip(factors.items(), k, strict=True):
                place[axis] = index[axis] * factor + offset
            return dY[tuple(place)]

        return sum_over(list(factors.values()), term)

    return compute(shape, element)


def _returned(dY: Tensor, table: ResizedAxis, dX: Output) -> Tensor:
    """The transpose along one dimension, in the type that is computed with."""
    axis, dtype = table.axis, compute_type(dX.dtype)
    shape = (*dY.shape[:axis], dX.shape[axis], *dY.shape[axis + 1 :])

    def part(*index: Index) -> Scalar:
        outer, (o, tap), inner = index[:axis], index[axis : axis + 2], index[axis + 2 :]
        value = dY[(*outer, o, *inner)]
        return value if table.weights is None else value * table.weights[tap, o].astype(value.dtype)

    updates = compute((*dY.shape[: axis + 1], table.count, *dY.shape[axis + 1 :]), part)
    places = [
        *range(axis),
        lambda update: table.places[update[axis + 1], update[axis]],
        *range(axis + 2, dY.rank + 1),
    ]
    array = dX.trace.intermediate("part", shape, dtype)
    result = Output(shape, dtype, array.name, dX.trace)
    scatter(result, full(shape, 0, dtype), updates, places, "add")
    return result

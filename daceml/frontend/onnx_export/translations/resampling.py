"""Interpolation and grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import Size, Value, op, rank_of, sizes_of


def _resize(
    input: Value, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None, **how: Any
) -> Value:
    """Resize the spatial dimensions, to static sizes or by given factors."""
    if how["mode"] != "nearest" and input.dtype == ir.DataType.UINT8:
        raise UnsupportedError("interpolation of bytes, which torch rounds in fixed-point arithmetic")
    axes = list(range(2, rank_of(input)))
    if scale_factors is not None and output_size is None:
        output_size = _exact_sizes(sizes_of(input)[2:], scale_factors)
    if scale_factors is not None and output_size is None:
        factors = ir.tensor([float(factor) for factor in scale_factors], dtype=ir.DataType.FLOAT)
        return op.Resize(input, None, op.Constant(value=factors), None, axes=axes, **how)
    if output_size is None or not all(isinstance(size, int) for size in output_size):
        raise UntranslatableError("interpolation to a symbolic size")
    return op.Resize(input, None, None, list(output_size), axes=axes, **how)


def _exact_sizes(extents: Sequence[Size], factors: Sequence[float]) -> list[int] | None:
    """The resulting sizes, where they say the factors exactly; a list of ONNX's holds them as float32."""
    results: list[int] = []
    for extent, factor in zip(extents, factors, strict=True):
        result = math.floor(extent * factor) if isinstance(extent, int) else 0
        if not isinstance(extent, int) or not result or 1.0 / factor != extent / result:
            return None
        results.append(result)
    return results


@translates("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def nearest(input: Value, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None) -> Value:
    return _resize(
        input,
        output_size,
        scale_factors,
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


@translates(
    "aten._upsample_nearest_exact1d.vec",
    "aten._upsample_nearest_exact2d.vec",
    "aten._upsample_nearest_exact3d.vec",
)
def nearest_exact(
    input: Value, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None
) -> Value:
    return _resize(
        input,
        output_size,
        scale_factors,
        mode="nearest",
        nearest_mode="round_prefer_ceil",
        coordinate_transformation_mode="half_pixel",
    )


def _coordinates(align_corners: bool) -> str:
    # torch's formula for one output is that for many, which ONNX's pytorch_half_pixel is not
    return "align_corners" if align_corners else "half_pixel"


@translates("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec")
def linear(
    input: Value,
    output_size: Sequence[Any] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Value:
    coordinates = _coordinates(align_corners)
    return _resize(
        input, output_size, scale_factors, mode="linear", coordinate_transformation_mode=coordinates
    )


@translates("aten.upsample_bicubic2d.vec")
def cubic(
    input: Value,
    output_size: Sequence[Any] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Value:
    return _resize(
        input,
        output_size,
        scale_factors,
        mode="cubic",
        cubic_coeff_a=-0.75,
        coordinate_transformation_mode=_coordinates(align_corners),
    )


@translates("aten._upsample_bilinear2d_aa.default", "aten._upsample_bicubic2d_aa.default")
def antialiased(
    self: Value,
    output_size: Sequence[Any],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:
    """torch's own table translates it, without a look at the scales, and with other corners than torch."""
    if align_corners:
        raise UnsupportedError("interpolation with antialias and align_corners")
    for extent, result, scale in zip(sizes_of(self)[2:], output_size, (scales_h, scales_w), strict=True):
        static = isinstance(extent, int) and isinstance(result, int) and result > 0
        if scale is None or (static and 1.0 / scale == extent / result):  # pyright: ignore
            continue
        raise UnsupportedError(
            f"interpolation with antialias by the factor {scale}, which is not the ratio of the sizes; "
            "give size=..., or recompute_scale_factor=True"
        )
    raise UntranslatableError("interpolation with antialias")


@translates("aten.grid_sampler.default", "aten.grid_sampler_2d.default")
def grid_sampler(
    input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    return op.GridSample(
        input,
        grid,
        mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
        align_corners=int(align_corners),
    )


@translates("aten.pixel_shuffle.default")
def pixel_shuffle(self: Value, upscale_factor: int) -> Value:
    if len(sizes_of(self)) != 4:
        raise UntranslatableError("a pixel shuffle without batch dimension")
    return op.DepthToSpace(self, blocksize=upscale_factor, mode="CRD")

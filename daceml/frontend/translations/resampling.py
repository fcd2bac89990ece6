"""Interpolation and grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from daceml.frontend.translations import UntranslatableError, translates
from daceml.frontend.translations.emit import Value, op, rank_of, sizes_of


def _resize(
    input: Value, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None, **how: Any
) -> Value:
    """Resize the spatial dimensions, to static sizes or by given factors."""
    axes = list(range(2, rank_of(input)))
    if scale_factors is not None:
        factors = ir.tensor([float(factor) for factor in scale_factors], dtype=ir.DataType.FLOAT)
        return op.Resize(input, None, op.Constant(value=factors), None, axes=axes, **how)
    if output_size is None or not all(isinstance(size, int) for size in output_size):
        raise UntranslatableError("interpolation to a symbolic size")
    return op.Resize(input, None, None, list(output_size), axes=axes, **how)


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


def _coordinates(align_corners: bool) -> str:
    return "align_corners" if align_corners else "pytorch_half_pixel"


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

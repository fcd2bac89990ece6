"""Padding: the inside and each border are boxes of the result, written once each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sympy

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, full
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.rounded_division import never_negative
from daceml.sdfg.scalar import Index, compute_type
from daceml.sdfg.sizes import size


def padded(x: Tensor, before: Sequence[Index], after: Sequence[Index], value: float) -> Tensor:
    """An intermediate tensor: x with a border of one value; x itself where there is no border."""
    if not any((*before, *after)):
        return x
    shape = [b + s + a for b, s, a in zip(before, x.shape, after, strict=True)]
    trace = x.trace
    array = trace.intermediate("padded", shape, x.dtype)
    result = Output(shape, x.dtype, array.name, trace)
    border = full((), value, x.dtype)
    write_boxes(result, x, before, after, lambda _axis, _low: border)
    return result


def write_boxes(
    result: Output, x: Tensor, before: Sequence[Index], after: Sequence[Index], border: object
) -> None:
    """Write x inside and `border(axis, low)` in the slab before (low) or after it along each axis.

    The slab along an axis spans the inside of earlier axes and all of later ones, so that slabs are disjoint.
    """
    inside = [slice(b, b + s) for b, s in zip(before, x.shape, strict=True)]
    result[tuple(inside) if inside else slice(None)] = x
    for axis, (b, s, a) in enumerate(zip(before, x.shape, after, strict=True)):
        head, tail = inside[:axis], [slice(None)] * (x.rank - axis - 1)
        if b:
            result[(*head, slice(0, b), *tail)] = border(axis, True)  # pyright: ignore
        if a:
            result[(*head, slice(b + s, b + s + a), *tail)] = border(axis, False)  # pyright: ignore


@implements("Pad")
def pad(
    data: Tensor,
    pads: Tensor | None,
    constant_value: Tensor | None,
    axes: Tensor | None,
    output: Output,
    *,
    mode: str = "constant",
    value: float | None = None,
    paddings: Sequence[int] | None = None,
) -> None:
    before, after = _amounts(data, paddings if pads is None else pads.numbers, axes)
    # A negative amount crops.
    sides = zip(before, data.shape, after, strict=True)
    crop = tuple(slice(_above_zero(-b), size(s - _above_zero(-a))) for b, s, a in sides)
    x = data if all(map(never_negative, (*before, *after))) else data[crop]
    before, after = [_above_zero(b) for b in before], [_above_zero(a) for a in after]
    if mode == "constant":
        if constant_value is not None:
            filler = constant_value.reshape(()).astype(compute_type(data.dtype))
        else:
            filler = full((), 0 if value is None else value, data.dtype)
        write_boxes(output, x, before, after, lambda _axis, _low: filler)
        return
    if mode not in ("edge", "reflect", "wrap"):
        raise Refused(f"mode {mode!r} is not known")
    _mirror(output, x, before, after, mode)


def _above_zero(amount: Index) -> Index:
    """The amount, or 0 where it is less."""
    if never_negative(amount):
        return amount
    return 0 if never_negative(-amount) else sympy.Max(amount, 0)


def _amounts(
    data: Tensor, amounts: Sequence[Index] | None, axes: Tensor | None
) -> tuple[list[Index], list[Index]]:
    if amounts is None:
        raise Refused("pads is neither constant nor computed from sizes")
    if axes is not None and axes.value is None:
        raise Refused("axes is not constant")
    chosen = (
        range(data.rank) if axes is None else [axis_of(int(a), data.rank) for a in np.asarray(axes.value)]
    )
    before, after = list[Index]([0] * data.rank), list[Index]([0] * data.rank)
    for n, axis in enumerate(chosen):
        before[axis], after[axis] = amounts[n], amounts[n + len(amounts) // 2]
    return before, after


def _mirror(output: Output, x: Tensor, before: Sequence[Index], after: Sequence[Index], mode: str) -> None:
    """Every combination of low border, inside and high border along the axes is a box of its own."""
    boxes: list[tuple[tuple[slice, ...], tuple[slice | Index, ...]]] = [((), ())]
    for axis, (b, s, a) in enumerate(zip(before, x.shape, after, strict=True)):
        pieces = [(slice(b, b + s), slice(None))]
        for amount, low in ((b, True), (a, False)):
            if not amount:
                continue
            fixed = isinstance(s, int) and isinstance(amount, int)
            if mode != "edge" and fixed and amount > (s - 1 if mode == "reflect" else s):
                raise Refused(f"a {mode} border of {amount} on size {s}, axis {axis}")
            box = slice(0, b) if low else slice(b + s, b + s + a)
            pieces.append((box, _source(mode, s, amount, low)))
        boxes = [((*t, p), (*f, q)) for t, f in boxes for p, q in pieces]
    for target, source in boxes:
        output[target] = x[source]


def _source(mode: str, extent: Index, amount: Index, low: bool) -> slice:
    """What a border of the mode repeats: along this axis a slice of the inside."""
    if mode == "edge":
        return slice(0, 1) if low or same(extent, 1) else slice(extent - 1, extent)
    if mode == "wrap":
        return slice(extent - amount, extent) if low else slice(0, amount)
    if low:
        return slice(amount, 0, -1)
    stop = extent - 2 - amount
    # A stop of -1 would mean the last element.
    return slice(extent - 2, None if isinstance(stop, int) and stop < 0 else stop, -1)

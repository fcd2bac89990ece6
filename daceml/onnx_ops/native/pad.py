"""Padding: the inside and each border are boxes of the result, written once each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, full
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, compute_type


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float) -> Tensor:
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
    result: Output, x: Tensor, before: Sequence[int], after: Sequence[int], border: object
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
    before, after = _amounts(data, paddings if pads is None else pads.value, axes)
    # A negative amount crops.
    crop = tuple(slice(max(-b, 0), s - max(-a, 0)) for b, s, a in zip(before, data.shape, after, strict=True))
    x = data[crop] if any(v < 0 for v in (*before, *after)) else data
    before, after = [max(b, 0) for b in before], [max(a, 0) for a in after]
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


def _amounts(data: Tensor, pads: object, axes: Tensor | None) -> tuple[list[int], list[int]]:
    if pads is None:
        raise Refused("pads is no constant")
    amounts = [int(p) for p in np.asarray(pads).reshape(-1)]
    if axes is not None and axes.value is None:
        raise Refused("axes is no constant")
    chosen = (
        range(data.rank) if axes is None else [axis_of(int(a), data.rank) for a in np.asarray(axes.value)]
    )
    before, after = [0] * data.rank, [0] * data.rank
    for n, axis in enumerate(chosen):
        before[axis], after[axis] = amounts[n], amounts[n + len(amounts) // 2]
    return before, after


def _mirror(output: Output, x: Tensor, before: Sequence[int], after: Sequence[int], mode: str) -> None:
    """Every combination of low border, inside and high border along the axes is a box of its own."""
    boxes: list[tuple[tuple[slice, ...], tuple[slice | Index, ...]]] = [((), ())]
    for axis, (b, s, a) in enumerate(zip(before, x.shape, after, strict=True)):
        pieces = [(slice(b, b + s), slice(None))]
        for amount, low in ((b, True), (a, False)):
            if not amount:
                continue
            if mode != "edge" and isinstance(s, int) and amount > (s - 1 if mode == "reflect" else s):
                raise Refused(f"a {mode} border of {amount} on size {s}, axis {axis}")
            box = slice(0, b) if low else slice(b + s, b + s + a)
            pieces.append((box, _source(mode, s, amount, low)))
        boxes = [((*t, p), (*f, q)) for t, f in boxes for p, q in pieces]
    for target, source in boxes:
        output[target] = x[source]


def _source(mode: str, extent: Index, amount: int, low: bool) -> slice:
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

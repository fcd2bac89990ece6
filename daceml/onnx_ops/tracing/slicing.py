"""Basic slicing of lazy tensors: keys turned into a shape and a map of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from daceml.onnx_ops.tracing.indexing import Position, Shape, floor_div
from daceml.sdfg.scalar import Index
from daceml.sdfg.sizes import size


def normal_slice(key: slice, extent: Index) -> tuple[Index, Index, int]:
    """(start, number of elements, step) of a slice with Python's rules; symbolic ends must be in range."""
    step = 1 if key.step is None else int(key.step)
    if isinstance(extent, int) and all(v is None or isinstance(v, int) for v in (key.start, key.stop)):
        start, stop, step = key.indices(extent)
        return start, len(range(start, stop, step)), step
    start = (0 if step > 0 else extent - 1) if key.start is None else key.start
    stop = (extent if step > 0 else -1) if key.stop is None else key.stop
    if isinstance(start, int) and start < 0:
        start = extent + start
    if isinstance(stop, int) and stop < 0 and key.stop is not None:
        stop = extent + stop
    length: Index = size(stop - start)
    return (
        start,
        length if step == 1 else size(floor_div(length + step - (1 if step > 0 else -1), step)),
        step,
    )


def sliced(
    shape: Shape, keys: tuple[Any, ...]
) -> tuple[list[Index], Callable[[tuple[Position, ...]], Sequence[Position]]]:
    """Shape of `x[keys]`, and the index into x for an index into it."""
    result: list[Index] = []
    rules: list[Callable[[tuple[Position, ...]], Position]] = []
    dimension = 0
    for key in _expanded(keys, len(shape)):
        if key is None:
            result.append(1)
            continue
        if isinstance(key, slice):
            start, length, step = normal_slice(key, shape[dimension])
            rules.append(_along(len(result), start, step))
            result.append(length)
        else:
            rules.append(lambda _, key=key: key)
        dimension += 1
    return result, lambda index: [rule(index) for rule in rules]


def region(shape: Shape, keys: tuple[Any, ...]) -> tuple[Shape, Shape, tuple[int, ...]]:
    """Starts, lengths and steps of the box that is assigned to in `x[keys] = ...`."""
    boxes: list[tuple[Index, Index, int]] = []
    if shape or not all(k is Ellipsis or k == slice(None) for k in keys):
        for key, extent in zip(_expanded(keys, len(shape)), shape, strict=True):
            boxes.append(normal_slice(key, extent) if isinstance(key, slice) else (key, 1, 1))
    return tuple(b[0] for b in boxes), tuple(b[1] for b in boxes), tuple(b[2] for b in boxes)


def _along(axis: int, start: Index, step: int) -> Callable[[tuple[Position, ...]], Position]:
    return lambda index: start + index[axis] * step


def _expanded(keys: tuple[Any, ...], rank: int) -> list[Any]:
    """Keys with `...` written out and missing ones added."""
    missing = rank - sum(k is not None and k is not Ellipsis for k in keys)
    if missing < 0:
        raise IndexError(f"{len(keys)} indices for a tensor of rank {rank}")
    place = next((n for n, k in enumerate(keys) if k is Ellipsis), len(keys))
    return [*keys[:place], *[slice(None)] * missing, *keys[place + 1 :]]

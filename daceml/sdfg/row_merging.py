"""The last dimensions of a loop as one, where all that it accesses has them side by side in memory.

for h, w in 0..H, 0..W: s += X[c, h, w]   ->   for e in 0..H W: s += X[c, e / W, e - W (e / W)]

Images of 7 x 7, and of 56 x 56, are rows of 49 and of 3,136 elements, which fill the threads of a block and
the vectors of a processor; so do volumes. The place of an element in memory is counted from e alone: the
quotients cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dace import symbolic

from daceml.sdfg.nest import Loop, Nest
from daceml.sdfg.scalar import Index
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, rename, substitute

Shapes = Mapping[str, Sequence[Index]]


def merge_rows(nest: Nest, shapes: Shapes) -> Nest:
    """The nest with as many as possible of the last dimensions of each loop merged.

    Args:
        shapes: of contiguous arrays; others keep their dimensions.
    """
    return replace(nest, loops=tuple(_merged(loop, nest, shapes) for loop in nest.loops))


def is_merged(index: Sequence[Index | None], param: str) -> bool:
    """Whether an index goes along memory with a parameter of a merged loop."""
    along = [i is not None and param in free_names(i) for i in index]
    first = next((d for d, goes in enumerate(along) if goes), len(index))
    if first > len(index) - 2 or not all(along[first:]):
        return False
    whole: Any = index[first]
    for place in index[first + 1 :]:
        if not isinstance(whole, symbolic.int_floor) or str(whole.args[0]) != param:
            return False
        # i = e / (H W), j = e / W - H i: j + H i is the quotient that the next place takes off, or e
        rest: Any = place
        size = -rest.coeff(whole)
        if size == 0 or whole.args[1] % size != 0:
            return False
        whole = rest + size * whole
    return str(whole) == param


def _merged(loop: Loop, nest: Nest, shapes: Shapes) -> Loop:
    for count in range(len(loop.params), 1, -1):
        first = len(loop.params) - count
        if first < loop.sequential < len(loop.params):
            continue
        if not all(isinstance(extent, int) for extent in loop.extents[first:]):
            continue
        if all(_side_by_side(array, index, first, loop, nest, shapes) for array, index in _accesses(loop)):
            return _with_one_row(loop, first)
    return loop


def _with_one_row(loop: Loop, first: int) -> Loop:
    """The loop with its dimensions from one on merged."""
    places = quotients(loop.params[-1], loop.extents[first:])
    names: dict[str, Index] = {str(p): place for p, place in zip(loop.params[first:], places, strict=True)}
    writes = tuple(
        replace(
            write,
            index=tuple(rename(i, names) for i in write.index),
            value=substitute(write.value, names),
        )
        for write in loop.writes
    )
    return replace(
        loop,
        params=(*loop.params[:first], loop.params[-1]),
        extents=(*loop.extents[:first], math.prod(loop.extents[first:])),
        writes=writes,
        sequential=min(loop.sequential, first + 1),
    )


def quotients(element: Any, extents: Sequence[int]) -> list[Any]:
    """Where each dimension of some extents is at an element of the row that they make together."""
    places: list[Any] = []
    for d in range(len(extents)):
        inner = math.prod(extents[d + 1 :])
        place = element if inner == 1 else symbolic.int_floor(element, inner)
        outside: Any = symbolic.int_floor(element, inner * extents[d])
        places.append(place - extents[d] * outside if d else place)
    return places


def _accesses(loop: Loop) -> list[tuple[str, Sequence[Index | None]]]:
    reads = [n for w in loop.writes for n in nodes_of(w.value) if n.op in ("read", "gather")]
    return [*((n.data[0], n.data[1]) for n in reads), *((w.target, w.index) for w in loop.writes)]


def _side_by_side(
    array: str, index: Sequence[Index | None], first: int, loop: Loop, nest: Nest, shapes: Shapes
) -> bool:
    """Whether an access goes through the last dimensions of an array as the loop does, or none."""
    row = [str(p) for p in loop.params[first:]]
    along = [i is not None and bool(free_names(i) & set(row)) for i in index]
    if not any(along):
        return True
    if array in nest.local or array not in shapes or any(along[: -len(row)]) or len(index) < len(row):
        return False
    inner = len(row) - 1
    same = tuple(shapes[array][-inner:]) == tuple(loop.extents[-inner:])
    return same and [str(i) for i in index[-len(row) :]] == row

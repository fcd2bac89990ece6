"""The last two dimensions of a loop as one, where all that it accesses has them side by side in memory.

for h, w in 0..H, 0..W: s += X[c, h, w]   ->   for e in 0..H W: s += X[c, e / W, e - W (e / W)]

Images of 7 x 7, and of 56 x 56, are rows of 49 and of 3,136 elements, which fill the threads of a block. The
place of an element in memory is counted from e alone: the quotients cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dace import symbolic

from daceml.sdfg.nest import Loop, Nest
from daceml.sdfg.scalar import Index
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, rename, substitute

Shapes = Mapping[str, Sequence[Index]]


def merge_rows(nest: Nest, shapes: Shapes) -> Nest:
    """The nest with the last two dimensions of its loops merged wherever that can be.

    Args:
        shapes: of contiguous arrays; others keep their dimensions.
    """
    return replace(nest, loops=tuple(_merged(loop, nest, shapes) for loop in nest.loops))


def is_merged(index: Sequence[Index | None], param: str) -> bool:
    """Whether an index goes along memory with a parameter of a merged loop."""
    if len(index) < 2:
        return False
    *others, high, low = index
    if not isinstance(high, symbolic.int_floor) or str(high.args[0]) != param:
        return False
    same = low == high.args[0] - high.args[1] * high
    return same and not any(o is not None and param in free_names(o) for o in others)


def _merged(loop: Loop, nest: Nest, shapes: Shapes) -> Loop:
    if len(loop.params) < 2 or loop.sequential == len(loop.params) - 1:
        return loop
    high, low = loop.params[-2:]
    rows, columns = loop.extents[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return loop
    if not all(_side_by_side(array, index, loop, nest, shapes) for array, index in _accesses(loop)):
        return loop
    names = _names(low, str(high), columns)
    writes = tuple(
        replace(
            write,
            index=tuple(rename(i, names) for i in write.index),
            value=substitute(write.value, names),
        )
        for write in loop.writes
    )
    sequential = loop.sequential - (loop.sequential == len(loop.params))
    return replace(
        loop,
        params=(*loop.params[:-2], low),
        extents=(*loop.extents[:-2], rows * columns),
        writes=writes,
        sequential=sequential,
    )


def _names(element: Any, high: str, columns: int) -> dict[str, Index]:
    quotient: Any = symbolic.int_floor(element, columns)
    return {high: quotient, str(element): element - columns * quotient}


def _accesses(loop: Loop) -> list[tuple[str, Sequence[Index | None]]]:
    reads = [n for w in loop.writes for n in nodes_of(w.value) if n.op in ("read", "gather")]
    return [*((n.data[0], n.data[1]) for n in reads), *((w.target, w.index) for w in loop.writes)]


def _side_by_side(array: str, index: Sequence[Index | None], loop: Loop, nest: Nest, shapes: Shapes) -> bool:
    """Whether an access goes through the last two dimensions of an array as the loop does, or none."""
    pair = [str(p) for p in loop.params[-2:]]
    along = [i is not None and bool(free_names(i) & set(pair)) for i in index]
    if not any(along):
        return True
    if array in nest.local or array not in shapes or any(along[:-2]) or len(index) < 2:
        return False
    return [str(i) for i in index[-2:]] == pair and shapes[array][-1] == loop.extents[-1]

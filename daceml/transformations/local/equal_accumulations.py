"""Accumulations of one loop that add up the same are one.

s += x[k];  t += x[k] for k;  m = s / K;  y = t     ->     s += x[k] for k;  m = s / K;  y = s

A gradient of a scale is a sum, and the gradient of what it scales takes the mean of the same.
"""

from __future__ import annotations

from dataclasses import replace

from daceml.sdfg.nest import Loop, Nest, Write
from daceml.sdfg.scalar import Scalar
from daceml.sdfg.scalar_rewrite import nodes_of, replace_parts
from daceml.transformations.local.shared_values import Numbers


def merge_equal_accumulations(nest: Nest) -> Nest:
    """The nest with one accumulator for all that hold the same number; they are local."""
    numbers, same = Numbers(), dict[str, str]()
    for loop in nest.loops:
        kept: dict[tuple[object, ...], str] = {}
        numbered = numbers.of(loop)
        for write in loop.writes:
            if write.operator is not None and write.target in nest.local:
                shape, dtype = nest.local[write.target]
                index = [str(i) for i in write.index]
                key = (write.operator, numbered[id(write.value)], str(shape), str(index), dtype.to_string())
                first = kept.setdefault(key, write.target)
                if first != write.target:
                    same[write.target] = first
    if not same:
        return nest
    loops = [_without(loop, same) for loop in nest.loops]
    return replace(
        nest,
        loops=tuple(loop for loop in loops if loop.writes),
        local={name: kind for name, kind in nest.local.items() if name not in same},
    )


def _without(loop: Loop, same: dict[str, str]) -> Loop:
    """A loop that neither writes nor reads accumulators that others stand for."""
    writes = [w for w in loop.writes if w.target not in same]
    return replace(loop, writes=tuple(_reading(write, same) for write in writes))


def _reading(write: Write, same: dict[str, str]) -> Write:
    parts: dict[int, Scalar] = {}
    for node in nodes_of(write.value):
        if node.op == "read" and node.data[0] in same:
            array, index = node.data
            parts[id(node)] = Scalar("read", node.dtype, data=(same[array], index))
    return replace(write, value=replace_parts(write.value, parts)) if parts else write

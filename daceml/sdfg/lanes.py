"""Sums in lanes: a loop that adds into one register becomes one that adds into many, which vectorises.

acc += f(k) for k in 0..K   ->   lane[v] += f(32 b + v) for b, for v in 0..32;   acc += lane[v] for v in 0..32

The order of additions is part of the program, so it is the same on every machine; nobody allows the compiler
to reorder them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import dace

from daceml.sdfg.nest import Loop, Nest, Write, loop_parameters, start
from daceml.sdfg.row_merging import is_merged
from daceml.sdfg.scalar import DType, Index, Scalar, apply, read
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, substitute

# As many float64 as four vectors of 512 bits have: enough additions in flight to hide how long one takes.
# Rows that are short, or do not divide, have half as many.
LANES = 32
FEWEST_LANES = 16
_LONG_ROW = 4 * LANES
# So few are added one after the other
_FEWEST = 4
_OPERATIONS = {"sum": "add", "prod": "mul"}


def in_lanes(sdfg: dace.SDFG, nest: Nest) -> Nest:
    """The nest with every accumulation along memory in lanes."""
    local = dict(nest.local)
    loops: list[Loop] = []
    for loop in nest.loops:
        loops += _in_lanes(sdfg, loop, local) if _adds_along_memory(sdfg, loop, local) else [loop]
    return replace(nest, loops=tuple(loops), local=local)


def _adds_along_memory(
    sdfg: dace.SDFG, loop: Loop, local: dict[str, tuple[tuple[Index, ...], DType]]
) -> bool:
    if not loop.params or loop.sequential < len(loop.params):
        return False
    last, extent = str(loop.params[-1]), loop.extents[-1]
    if not isinstance(extent, int) or extent < FEWEST_LANES:
        return False
    along = False
    for node in (n for write in loop.writes for n in nodes_of(write.value)):
        if node.op == "gather":
            return False
        if node.op != "read":
            continue
        array, index = node.data
        if not any(last in free_names(i) for i in index):
            continue
        if is_merged(index, last):
            along = True
            continue
        strides = sdfg.arrays[array].strides if array not in local else _strides(local[array][0])
        for i, stride in zip(index, strides, strict=True):
            if last in free_names(i) and stride != 1:
                return False
        along = True
    return along


def lanes_of(extent: int) -> int:
    """How many lanes a row of some elements is added up in."""
    return LANES if extent % LANES == 0 or extent >= _LONG_ROW else FEWEST_LANES


def _strides(shape: tuple[Index, ...]) -> tuple[Index, ...]:
    strides: list[Index] = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))


def _in_lanes(
    sdfg: dace.SDFG, loop: Loop, local: dict[str, tuple[tuple[Index, ...], DType]]
) -> Iterator[Loop]:
    """Starts, the loop over whole runs, what is left over, and the sum of the lanes."""
    lanes, count = list[str](), lanes_of(loop.extents[-1])
    for write in loop.writes:
        name = f"{write.target}_lanes"
        lanes.append(name)
        dtype = local[write.target][1]
        local[name] = ((count,), dtype)
        assert write.operator is not None
        yield start(name, (count,), dtype, write.operator)
    outer = len(loop.params) - 1
    runs, rest = divmod(loop.extents[-1], count)
    yield _part(loop, lanes, loop_parameters(outer + 1, outer + 2), (runs, count), 0)
    if rest:
        yield _part(loop, lanes, loop_parameters(outer, outer + 1), (rest,), runs * count)
    yield from _folded(loop, lanes, local, count)


def _folded(
    loop: Loop, lanes: list[str], local: dict[str, tuple[tuple[Index, ...], DType]], count: int
) -> Iterator[Loop]:
    """Halves added to each other while they are vectors, then one lane after the other."""
    left, names = count, lanes
    (lane,) = loop_parameters(0, 1)
    while left > _FEWEST:
        half, writes = left // 2, list[Write]()
        for write, name in zip(loop.writes, names, strict=True):
            dtype = local[name][1]
            local[f"{name}_half"] = ((half,), dtype)
            low, high = (read(name, dtype, (place,), (left,)) for place in (lane, lane + half))
            assert write.operator is not None
            value = apply(_OPERATIONS.get(write.operator, write.operator), low, high)
            writes.append(Write(target=f"{name}_half", index=(lane,), value=value))
        yield Loop(params=(lane,), extents=(half,), writes=tuple(writes))
        left, names = half, [f"{name}_half" for name in names]
    (lane,) = loop_parameters(1, 1)
    last = [
        replace(write, value=read(name, local[name][1], (lane,), (left,)))
        for write, name in zip(loop.writes, names, strict=True)
    ]
    yield Loop(params=(lane,), extents=(left,), writes=tuple(last), sequential=1)


def _part(
    loop: Loop, lanes: list[str], params: tuple[Index, ...], extents: tuple[int, ...], begin: int
) -> Loop:
    """The loop over a part of its last parameter's range, into lanes."""
    outer = len(loop.params) - 1
    lane = params[-1]
    whole = len(params) == outer + 2
    place = (params[-2] * extents[-1] if whole else 0) + lane + begin
    names = {str(loop.params[-1]): place}

    def value(write: Write) -> Scalar:
        return substitute(write.value, names)

    writes = [
        Write(target=name, index=(lane,), value=value(write), operator=write.operator)
        for write, name in zip(loop.writes, lanes, strict=True)
    ]
    return Loop(
        params=params,
        extents=(*loop.extents[:-1], *extents),
        writes=tuple(writes),
        sequential=len(params) - 1,
    )

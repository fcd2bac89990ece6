"""What a loop reads at one place for all its iterations is read once, in front of it.

Y[i, j] = X[i, j] * scale[i] for each j   ->   s = scale[i];  Y[i, j] = X[i, j] * s for each j

The C++ compiler may not do so where it cannot tell whether the loop writes what it reads, and such a loop may
stay scalar.
"""

from __future__ import annotations

from dataclasses import replace

from daceml.sdfg.nest import Loop, Nest, Write
from daceml.sdfg.scalar import DType, Index, Scalar
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, replace_parts


def read_points_once(nest: Nest) -> Nest:
    """The nest with elements that are the same in every iteration of a loop read into local values."""
    written = {write.target for loop in nest.loops for write in loop.writes}
    local = dict(nest.local)
    known: dict[str, str] = {}
    loops: list[Loop] = []
    for loop in nest.loops:
        params = set(map(str, loop.params))
        writes: list[Write] = []
        for write in loop.writes:
            parts: dict[int, Scalar] = {}
            for node in nodes_of(write.value) if params else ():
                if not _is_same(node, params) or node.data[0] in written:
                    continue
                key = str(node.data)
                if key not in known:
                    known[key] = f"{node.data[0]}_point{len(known)}"
                    local[known[key]] = ((1,), node.dtype)
                    loops.append(_kept(known[key], node))
                parts[id(node)] = _read(known[key], node.dtype)
            writes.append(replace(write, value=replace_parts(write.value, parts)) if parts else write)
        loops.append(replace(loop, writes=tuple(writes)))
    return replace(nest, loops=tuple(loops), local=local) if known else nest


def _is_same(node: Scalar, params: set[str]) -> bool:
    if node.op != "read":
        return False
    index: tuple[Index, ...] = node.data[1]
    return not any(free_names(i) & params for i in index)


def _kept(name: str, node: Scalar) -> Loop:
    return Loop(params=(), extents=(), writes=(Write(target=name, index=(0,), value=node),))


def _read(name: str, dtype: DType) -> Scalar:
    return Scalar("read", dtype, data=(name, (0,)))

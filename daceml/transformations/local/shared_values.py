"""Values that two loops of a nest compute alike are computed once and kept in a local array.

s += exp(x[k] - m) for k;  y[k] = exp(x[k] - m) / s   ->   e[k] = exp(x[k] - m);  s += e[k];  y[k] = e[k] / s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from daceml.sdfg.costs import SPECIAL_FUNCTIONS
from daceml.sdfg.nest import Loop, Nest, Write, is_small, loop_parameters
from daceml.sdfg.scalar import Index, Scalar, read
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, rename, replace_parts, substitute

# A square root is as quick as going through the nearest cache
_DEAR = SPECIAL_FUNCTIONS - {"sqrt", "rsqrt"}


def keep_shared_values(nest: Nest, limit_bytes: int) -> Nest:
    """The nest with special functions of equal arguments evaluated once, where the values fit.

    Args:
        limit_bytes: of one local array.
    """
    loops, local = list(nest.loops), dict(nest.local)
    numbers = Numbers()
    place = 0
    while place < len(loops):
        loop = loops[place]
        value = _shared(loop, loops[place + 1 :], numbers)
        if value is None or not is_small(loop.extents, value.dtype, limit_bytes):
            place += 1
            continue
        name = f"{nest.label}_shared{len(local)}"
        local[name] = (loop.extents, value.dtype)
        params = loop_parameters(0, len(loop.params))
        kept = substitute(value, dict(zip(map(str, loop.params), params, strict=True)))
        number = numbers.of(loop)[id(value)]
        written = Write(target=name, index=params, value=kept)
        reading = [
            _reading(other, name, number, numbers) if _alike(other, loop) else other
            for other in loops[place:]
        ]
        loops[place:] = [Loop(params=params, extents=loop.extents, writes=(written,)), *reading]
        place += 1
    return replace(nest, loops=tuple(loops), local=local) if len(loops) > len(nest.loops) else nest


def _alike(one: Loop, other: Loop) -> bool:
    return bool(one.params) and [str(e) for e in one.extents] == [str(e) for e in other.extents]


def _shared(loop: Loop, later: Sequence[Loop], numbers: Numbers) -> Scalar | None:
    """The largest dear value of a loop that a later one computes, too."""
    if not any(write.operator for write in loop.writes):
        return None  # what a loop writes, fusion has kept already
    known = {n for other in later if _alike(loop, other) for n in _dear(other, numbers).values()}
    own = {id(n): n for write in loop.writes for n in nodes_of(write.value)}
    params = {str(p) for p in loop.params}
    shared = [own[i] for i, n in _dear(loop, numbers).items() if n in known]
    return max((n for n in shared if params <= _names_in(n)), key=lambda n: len(nodes_of(n)), default=None)


def _dear(loop: Loop, numbers: Numbers) -> dict[int, int]:
    """Numbers of the values that are dear or come from dear ones, by identity."""
    numbered, dear = numbers.of(loop), set[int]()
    for write in loop.writes:
        for node in nodes_of(write.value):
            if node.op in _DEAR or any(id(a) in dear for a in node.args):
                dear.add(id(node))
    return {i: numbered[i] for i in dear}


def _names_in(value: Scalar) -> set[str]:
    """Parameters that a value depends on."""
    found: set[str] = set()
    for node in nodes_of(value):
        if node.op in ("read", "gather"):
            found = found.union(*(free_names(i) for i in node.data[1] if i is not None))
        elif node.op == "index":
            found |= free_names(node.data)
    return found


class Numbers:
    """Equal values of different loops get equal numbers; parameters count by their place."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], int] = {}

    def of(self, loop: Loop) -> dict[int, int]:
        """Identity of a node -> its number, for everything that a loop computes."""
        names = dict(zip(map(str, loop.params), loop_parameters(0, len(loop.params)), strict=True))
        found: dict[int, int] = {}
        for write in loop.writes:
            for node in nodes_of(write.value):
                operands = tuple(found[id(a)] for a in node.args)
                key = (node.op, node.dtype.to_string(), _data(node, names), operands)
                found[id(node)] = self.known.setdefault(key, len(self.known))
        return found


def _data(node: Scalar, names: dict[str, Index]) -> str:
    match node.op:
        case "read" | "gather":
            return str([node.data[0], *(i if i is None else str(rename(i, names)) for i in node.data[1])])
        case "index":
            return str(rename(node.data, names))
        case _:
            return repr(node.data)


def _reading(loop: Loop, name: str, number: int, numbers: Numbers) -> Loop:
    """A loop that reads the kept value instead of computing it."""
    numbered = numbers.of(loop)
    writes: list[Write] = []
    for write in loop.writes:
        parts = {
            id(node): read(name, node.dtype, tuple(loop.params), loop.extents)
            for node in nodes_of(write.value)
            if numbered[id(node)] == number
        }
        writes.append(replace(write, value=replace_parts(write.value, parts)) if parts else write)
    return replace(loop, writes=tuple(writes))

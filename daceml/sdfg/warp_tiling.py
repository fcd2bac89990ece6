"""WarpTiling: the rows of a nest divided among threads, and what is added up along a row joined by all.

for each row:                                    for each row, for each thread t of T:
    for v in 0..n: s += f(v)                         for v in 0..(n - t) / T: s += f(T v + t)
                                                     total = the sum of s over all threads
    for v in 0..n: e[v] = g(v, s)                    for v in 0..(n - t) / T: e[v] = g(T v + t, total)

A thread is one more parameter of the points of the nest, so local arrays are a thread's own, and those along
the row hold its part of it. What does not go along the row is done by every thread; what it writes into an
array of the network is written by the first one.

Source: Rausch et al., DaCeML (ICS '22), section 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import dace
from dace import symbolic

from daceml.sdfg.nest import Chunks, Loop, Nest, Operator, Write, loop_parameters
from daceml.sdfg.scalar import Index, Scalar, identity, literal, read
from daceml.sdfg.scalar import cast as cast_to
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, rename, replace_parts, substitute

WARP = 32
MOST_THREADS = 1024
# of a row that a thread has, where the row is long: enough loads in flight, and few enough registers
_ELEMENTS = 8

THREAD: Any = symbolic.symbol("t", dace.int64)
_PLACE: Any = symbolic.symbol("_place")
_OF_ALL = "_of_all"
_COLLECTIVES = {"sum": "block_sum", "prod": "block_product", "max": "block_max", "min": "block_min"}


def over_threads(nest: Nest) -> Nest | str:
    """The nest with a thread as the last parameter of its points; or why it has none. Changes nothing.

    Rows are what the last parameters of its loops go along, where they go through a warp or more.
    """
    longest = max((_row(loop) for loop in nest.loops), default=0)
    if longest < WARP:
        return f"its rows have {longest} elements, fewer than a warp has lanes"
    return _Tiling(nest, threads_of(longest)).tiled()


def chunks_over_threads(chunks: Chunks) -> Chunks | str:
    """The same for a nest in chunks: sums along the row, too, are divided among threads."""
    loops = (*chunks.nest.loops, *chunks.last)
    tiled = over_threads(replace(chunks.nest, loops=loops, local={**chunks.nest.local, **chunks.sums}))
    if isinstance(tiled, str):
        return tiled
    if any(f"{name}{_OF_ALL}" in tiled.local for name in chunks.sums):
        return "a sum over its points does not go along its rows"
    count = len(tiled.loops) - len(chunks.last)
    sums = {name: tiled.local[name] for name in chunks.sums}
    local = {name: kind for name, kind in tiled.local.items() if name not in sums}
    nest = replace(tiled, loops=tiled.loops[:count], local=local)
    return replace(chunks, nest=nest, sums=sums, last=tiled.loops[count:])


def threads_of(elements: int) -> int:
    """Threads for a row: a power of 2, from a warp to a whole block."""
    threads = WARP
    while threads < MOST_THREADS and threads * _ELEMENTS < elements:
        threads *= 2
    return threads


def _row(loop: Loop) -> int:
    """Elements that the last parameter goes along; 0 where nobody knows, or iterations may not be apart."""
    if not loop.params or not isinstance(loop.extents[-1], int):
        return 0
    accumulates = all(write.operator is not None for write in loop.writes)
    return loop.extents[-1] if loop.sequential < len(loop.params) or accumulates else 0


class _Tiling:
    def __init__(self, nest: Nest, threads: int) -> None:
        self.nest, self.threads = nest, threads
        self.local = dict(nest.local)
        self.parts: set[str] = set()  # local arrays along the row: each thread has a part
        self.partial: dict[str, Write] = {}  # local array -> how threads' shares of it are joined
        self.joined: dict[str, str] = {}  # local array -> the one with what all threads have
        self.begun: dict[str, list[Scalar | None]] = {}  # local array -> what each thread has written there
        self.given: set[str] = set()  # arrays of the network that are written

    def tiled(self) -> Nest | str:
        """See `over_threads`."""
        for loop in self.nest.loops:
            reason = self._classify(loop)
            if reason is not None:
                return reason
        for name in self.parts:
            shape, dtype = self.local[name]
            self.local[name] = ((*shape[:-1], _ceil(cast("int", shape[-1]), self.threads)), dtype)
        loops: list[Loop] = []
        for loop in self.nest.loops:
            found = list(self._tiled(loop))
            if isinstance(found[-1], str):
                return found[-1]
            loops += cast("list[Loop]", found)
        return replace(
            self.nest,
            params=(*self.nest.params, THREAD),
            extents=(*self.nest.extents, self.threads),
            loops=tuple(loops),
            local=self.local,
        )

    def _along(self, loop: Loop) -> bool:
        return _row(loop) >= WARP

    def _classify(self, loop: Loop) -> str | None:
        """Finds arrays along the row; a reason where threads would be in each other's way."""
        for write in loop.writes:
            if write.target in self.local:
                continue
            if write.operator is not None:
                return f"{write.target} is no thread's own, and is added to"
            if loop.params and loop.sequential == len(loop.params):
                return f"{write.target} is written in an order"
            self.given.add(write.target)
        if not self._along(loop):
            return None
        last = str(loop.params[-1])
        for write in loop.writes:
            if write.target not in self.local:
                continue
            if any(last in free_names(i) for i in write.index):
                if not _ends_with(write.index, last):
                    return f"{write.target} is written across its rows"
                self.parts.add(write.target)
            elif write.operator is None:
                return f"{write.target} is written over and over along a row"
        return None

    def _tiled(self, loop: Loop) -> Iterator[Loop | str]:
        yield from self._joins(loop)
        reason = self._refusal(loop)
        if reason is not None:
            yield reason
            return
        if self._along(loop):
            for write in loop.writes:
                if write.target in self.local and write.target not in self.parts:
                    self.partial[write.target] = write
            yield self._divided(loop)
            return
        for write in loop.writes:
            whole = None if write.operator else write.value
            self.begun.setdefault(write.target, []).append(whole)
        kept = tuple(write for write in loop.writes if write.target in self.local)
        given = tuple(write for write in loop.writes if write.target not in self.local)
        if kept:
            yield replace(loop, writes=tuple(self._renamed(write) for write in kept))
        if given:
            one = loop
            if not loop.params:
                one = replace(loop, params=loop_parameters(0, 1), extents=(1,))
            yield self._divided(replace(one, writes=given))

    def _joins(self, loop: Loop) -> Iterator[Loop]:
        """What all threads have added up, before somebody reads it."""
        values = (node for write in loop.writes for node in nodes_of(write.value))
        read_here = {node.data[0] for node in values if node.op in ("read", "gather")}
        for name in [name for name in self.partial if name in read_here]:
            write = self.partial.pop(name)
            shape, dtype = self.local[name]
            everywhere = f"{name}{_OF_ALL}"
            self.local[everywhere] = (shape, dtype)
            self.joined[name] = everywhere
            extents = tuple(e for e in shape if e != 1)
            params = loop_parameters(0, len(extents))
            left = iter(params)
            index = tuple(0 if e == 1 else next(left) for e in shape)
            assert write.operator is not None
            total = self._of_all(write.operator, read(name, dtype, index, shape))
            yield Loop(
                params=params, extents=extents, writes=(Write(target=everywhere, index=index, value=total),)
            )

    def _of_all(self, operator: Operator, share: Scalar) -> Scalar:
        """What all threads have together; threads exchange no bools."""
        given = cast_to(share, dace.int32) if share.dtype == dace.bool_ else share
        threads = literal(self.threads, dace.int32)
        return cast_to(Scalar(_COLLECTIVES[operator], given.dtype, (given, threads)), share.dtype)

    def _refusal(self, loop: Loop) -> str | None:
        """Why a loop cannot follow those before it."""
        last = str(loop.params[-1]) if loop.params else ""
        for write in loop.writes:
            if write.target in self.joined:
                return f"{write.target} goes on after it was read"
            if write.target in self.parts and not self._along(loop):
                return f"{write.target} is a row, and one of its elements is written apart"
            if self._counted_by_all(write, loop):
                return f"{write.target} has more in it than what threads share"
            for node in nodes_of(write.value):
                if node.op not in ("read", "gather"):
                    continue
                if node.op == "gather" and node.data[0] in self.joined:
                    return f"{node.data[0]} is read at places that are data"
                if node.data[0] in self.given:
                    return f"{node.data[0]} is read where it is written, maybe by another thread"
                if node.data[0] not in self.parts:
                    continue
                if node.op == "gather" or not self._along(loop) or not _ends_with(node.data[1], last):
                    return f"{node.data[0]} is read at other places of its row"
        return None

    def _counted_by_all(self, write: Write, loop: Loop) -> bool:
        """Whether every thread has, or would have, added something to a sum that is joined later."""
        if write.target not in self.local or write.target in self.parts:
            return False
        if not self._along(loop):
            return write.target in self.partial
        assert write.operator is not None, "a value along the row is a part of it"
        begin = identity(write.operator, self.local[write.target][1])
        return not all(
            value is not None and (value.op, value.data) == (begin.op, begin.data)
            for value in self.begun.get(write.target, ())
        )

    def _divided(self, loop: Loop) -> Loop:
        """The part of a loop that one thread does."""
        last: Any = loop.params[-1]
        extent = loop.extents[-1]
        names: dict[str, Index] = {str(last): self.threads * last + THREAD}
        even = isinstance(extent, int) and extent % self.threads == 0
        part: Index = (
            extent // self.threads
            if even
            else symbolic.int_floor(extent - THREAD + self.threads - 1, self.threads)
        )
        writes = [
            replace(
                write,
                index=write.index
                if write.target in self.parts
                else tuple(rename(i, names) for i in write.index),
                value=self._value(write.value, names, last),
            )
            for write in loop.writes
        ]
        return replace(loop, extents=(*loop.extents[:-1], part), writes=tuple(writes))

    def _renamed(self, write: Write) -> Write:
        return replace(write, value=self._value(write.value, {}, None))

    def _value(self, value: Scalar, names: Mapping[str, Index], last: Index | None) -> Scalar:
        """Of a thread: totals in the place of its shares, and its own part of each row."""
        totals: dict[int, Scalar] = {}
        for node in nodes_of(value):
            if node.op != "read":
                continue
            array, index = node.data
            if array in self.joined:
                totals[id(node)] = Scalar("read", node.dtype, (), (self.joined[array], index))
            elif array in self.parts and last is not None:
                totals[id(node)] = Scalar("read", node.dtype, (), (array, (*index[:-1], _PLACE)))
        changed = substitute(replace_parts(value, totals), names)
        return substitute(changed, {str(_PLACE): last}) if last is not None else changed


def _ends_with(index: Sequence[Index | None], last: str) -> bool:
    """Whether the last place is a parameter itself, and no other one has it."""
    *others, end = index
    return str(end) == last and not any(o is not None and last in free_names(o) for o in others)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)

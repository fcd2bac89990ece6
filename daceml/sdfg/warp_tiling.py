"""WarpTiling: the rows of a nest divided among threads, and what is added up along a row joined by all.

for each row:                                    for each row, for each thread t of T:
    for v in 0..n: s += f(v)                         for v in 0..n / T: s += f(T v + t)
                                                     if t < n % T:      s += f(n / T T + t)
                                                     total = the sum of s over all threads
    for v in 0..n: e[v] = g(v, s)                    for v in 0..n / T: e[v] = g(T v + t, total)
                                                     if t < n % T:      ...

A thread is one more parameter of the points of the nest, so local arrays are a thread's own, and those along
the row hold its part of it: in registers, since places in it are known where the loops are unrolled. Threads
take neighbours together, as many as have 128 bits, where these divide the rows (`gpu_vectors.py`). What does
not go along the row is done by every thread; what it writes into an array of the network is written by the
first one.

Source: Rausch et al., DaCeML (ICS '22), section 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import dace
from dace import symbolic

from daceml.sdfg.nest import Chunks, Loop, Nest, Operator, Write, loop_parameters
from daceml.sdfg.row_merging import Shapes, is_merged, merge_rows
from daceml.sdfg.scalar import Index, Scalar, identity, literal, read
from daceml.sdfg.scalar import cast as cast_to
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, rename, replace_parts, substitute

WARP = 32
# of a block: each may have 128 registers then
MOST_THREADS = 512
# of a row that a thread has, where the row is long: enough loads in flight, and few enough registers
_ELEMENTS = 8
# of a block: rows of one warp share one, without a barrier, and others have one for themselves
FEWEST_THREADS = 128
_VECTOR_BYTES = 16

THREAD: Any = symbolic.symbol("t", dace.int64)
# among the neighbours that a thread takes together
NEIGHBOUR: Any = symbolic.symbol("vn")
_PLACE: Any = symbolic.symbol("_place")
_OF_ALL = "_of_all"
_COLLECTIVES = {"sum": "block_sum", "prod": "block_product", "max": "block_max", "min": "block_min"}


def over_threads(nest: Nest, shapes: Shapes | None = None, threads: int | None = None) -> Nest | str:
    """The nest with a thread as the last parameter of its points; or why it has none. Changes nothing.

    Rows are what the last parameters of its loops go along, where they go through a warp or more.

    Args:
        shapes: of contiguous arrays, whose last two dimensions may be one row.
        threads: of a row; as its length asks for, unless they are given.
    """
    nest = merge_rows(nest, shapes or {})
    longest = max((_row(loop) for loop in nest.loops), default=0)
    if longest < WARP:
        return f"its rows have {longest} elements, fewer than a warp has lanes"
    return _Tiling(nest, threads or threads_of(longest)).tiled()


def chunks_over_threads(chunks: Chunks, shapes: Shapes | None = None) -> Chunks | str:
    """The same for a nest in chunks: sums along the row, too, are divided among threads."""
    loops = (*chunks.nest.loops, *chunks.last)
    nest = replace(chunks.nest, loops=loops, local={**chunks.nest.local, **chunks.sums})
    tiled = over_threads(nest, shapes)
    if isinstance(tiled, str):
        return tiled
    if any(f"{name}{_OF_ALL}" in tiled.local for name in chunks.sums):
        return "a sum over its points does not go along its rows"
    count = next(n for n, loop in enumerate(tiled.loops) if _arrays_read(loop) & chunks.sums.keys())
    sums = {name: tiled.local[name] for name in chunks.sums}
    local = {name: kind for name, kind in tiled.local.items() if name not in sums}
    nest = replace(tiled, loops=tiled.loops[:count], local=local)
    return replace(chunks, nest=nest, sums=sums, last=tiled.loops[count:])


def threads_of(elements: int) -> int:
    """Threads for a row: a warp, or whole blocks of a power of 2."""
    if elements <= WARP * _ELEMENTS:
        return WARP
    threads = FEWEST_THREADS
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
        self.width = self._width()

    def tiled(self) -> Nest | str:
        """See `over_threads`."""
        for loop in self.nest.loops:
            reason = self._classify(loop)
            if reason is not None:
                return reason
        for name in self.parts:
            shape, dtype = self.local[name]
            vectors = _ceil(cast("int", shape[-1]), self.threads * self.width)
            self.local[name] = ((*shape[:-1], vectors * self.width), dtype)
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

    def _width(self) -> int:
        """Neighbours that a thread takes together: they divide all rows, lie in memory, fill all threads."""
        loops = [loop for loop in self.nest.loops if self._along(loop)]
        largest = 0
        for loop in loops:
            last = str(loop.params[-1])
            reads = [n for w in loop.writes for n in nodes_of(w.value) if n.op in ("read", "gather")]
            for array, index, dtype in ((n.data[0], n.data[1], n.dtype) for n in reads):
                if array in self.local or not any(i is not None and last in free_names(i) for i in index):
                    continue
                if not _ends_with(index, last) and not is_merged(index, last):
                    return 1
                largest = max(largest, dtype.bytes)
        width = _VECTOR_BYTES // largest if largest else 1
        extents = [_row(loop) for loop in loops]
        while width > 1 and any(e % width or e < width * self.threads for e in extents):
            width //= 2
        return width

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
            yield from self._divided(loop, self.width)
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
            yield from self._divided(replace(one, writes=given), 1)

    def _joins(self, loop: Loop) -> Iterator[Loop]:
        """What all threads have added up, before somebody reads it."""
        read_here = _arrays_read(loop)
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

    def _divided(self, loop: Loop, width: int) -> Iterator[Loop]:
        """The part of a loop that one thread does: what all threads have alike, and what some have more."""
        last: Any = loop.params[-1]
        extent = loop.extents[-1]
        neighbour: Index = NEIGHBOUR if width > 1 else 0
        first: Index = width * THREAD + neighbour
        every = self.threads * width
        if not isinstance(extent, int):
            count = symbolic.int_floor(extent - THREAD + self.threads - 1, self.threads)
            yield self._part(loop, count, width, every * last + first, last)
            return
        runs, rest = divmod(extent, every)
        if runs:
            yield self._part(loop, runs, width, every * last + first, width * last + neighbour)
        if rest:
            # 1 or 0; the element depends on the parameter, so that its bounds depend on how many there are
            some = symbolic.int_floor(rest // width - THREAD + self.threads - 1, self.threads)
            yield self._part(loop, some, width, every * (runs + last) + first, width * runs + neighbour)

    def _part(self, loop: Loop, count: Index, width: int, element: Index, place: Index) -> Loop:
        """A loop over vectors.

        Args:
            element: of a row, at which a thread is.
            place: of that element in the thread's own part of the row.
        """
        names: dict[str, Index] = {str(loop.params[-1]): element}
        writes = [
            replace(
                write,
                index=(*write.index[:-1], place)
                if write.target in self.parts
                else tuple(rename(i, names) for i in write.index),
                value=self._value(write.value, names, place),
            )
            for write in loop.writes
        ]
        params, extents, sequential = loop.params, (*loop.extents[:-1], count), loop.sequential
        if width > 1:
            sequential += sequential == len(params)
            params, extents = (*params, NEIGHBOUR), (*extents, width)
        return replace(loop, params=params, extents=extents, writes=tuple(writes), sequential=sequential)

    def _renamed(self, write: Write) -> Write:
        return replace(write, value=self._value(write.value, {}, None))

    def _value(self, value: Scalar, names: Mapping[str, Index], place: Index | None) -> Scalar:
        """Of a thread: totals in the place of its shares, and its own part of each row."""
        totals: dict[int, Scalar] = {}
        for node in nodes_of(value):
            if node.op != "read":
                continue
            array, index = node.data
            if array in self.joined:
                totals[id(node)] = Scalar("read", node.dtype, (), (self.joined[array], index))
            elif array in self.parts and place is not None:
                totals[id(node)] = Scalar("read", node.dtype, (), (array, (*index[:-1], _PLACE)))
        changed = substitute(replace_parts(value, totals), names)
        return substitute(changed, {str(_PLACE): place}) if place is not None else changed


def _arrays_read(loop: Loop) -> set[str]:
    values = (node for write in loop.writes for node in nodes_of(write.value))
    return {node.data[0] for node in values if node.op in ("read", "gather")}


def _ends_with(index: Sequence[Index | None], last: str) -> bool:
    """Whether the last place is a parameter itself, and no other one has it."""
    *others, end = index
    return str(end) == last and not any(o is not None and last in free_names(o) for o in others)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)

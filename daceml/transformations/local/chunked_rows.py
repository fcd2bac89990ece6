"""Two reductions of a row, of which the second needs the first, in one sweep over chunks.

for each chunk c of a row:                            for each row, over its chunks:
    m[c] = max of x;   s[c] = sum of exp(x - m[c])        m = max of m[c];  s = sum of s[c] exp(m[c] - m)
    a[c] = mean of x;  q[c] = sum of (x - a[c])^2         a = mean of x;    q = sum of q[c] + n (a[c] - a)^2

A chunk stays in a cache: it is reduced twice, but read from memory once; chunks are independent of each
other, so a single row keeps all threads busy. How a row is cut follows from its length: the order of
additions is part of the program.

Squares are of deviations from a chunk's own mean, and means of chunks are subtracted from each other in the
type of the sums: what rounding a[c] leaves is added where that type is no wider. So nothing cancels that does
not cancel in two passes. A chunk of -inf alone has s[c] = 0; infinities and NaN come out as in two passes.

Sources: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances
(1979); Milakov and Gimelshein, Online normalizer calculation for softmax (2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from daceml.sdfg.builder import Builder
from daceml.sdfg.lanes import in_lanes
from daceml.sdfg.nest import Loop, Nest, Operator, Write, emit_nest, loop_parameters, points, start
from daceml.sdfg.scalar import DType, Index, Scalar, apply, cast, literal, read
from daceml.sdfg.scalar_rewrite import replace_parts, substitute
from daceml.transformations.local.point_values import read_points_once


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """`target[index] = result`, where a part of the result is a reduction of the row.

    Attributes:
        terms: what is reduced, over the `points` of rows and the `element_parameters` of a row.
        total: the node of `result` that is the reduction.
    """

    label: str
    target: str
    index: tuple[Index, ...]
    terms: Scalar
    result: Scalar
    total: Scalar


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two reductions of the same elements.

    Attributes:
        kind: maximum and sum of exponentials, or mean and sum of squares.
        rows: extents of the box of rows.
        elements: extents of a row.
        shifts: nodes of the second one's terms that are taken off every element; they depend on the first
            one's result only.
        firsts: nodes of the second one that read the first one's result.
    """

    kind: Literal["exponentials", "squares"]
    rows: tuple[int, ...]
    elements: tuple[int, ...]
    first: Reduced
    second: Reduced
    shifts: tuple[Scalar, ...]
    firsts: tuple[Scalar, ...]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A part of every row in chunks of one size.

    Attributes:
        chunks: extents of the box of chunks.
        sizes: extents of one chunk.
        begin: where the part begins in the dimension that is cut.
    """

    chunks: tuple[int, ...]
    sizes: tuple[int, ...]
    begin: int


def cut(elements: Sequence[int], most: int) -> tuple[Cut, ...]:
    """A row in chunks of at most so many elements, and what is left over where they do not divide.

    Leading dimensions count chunks, trailing ones stay whole. The size that divides is taken where there is
    one of at least half as many elements.
    """
    place, inner = len(elements) - 1, 1
    while place > 0 and inner * elements[place] <= most:
        inner *= elements[place]
        place -= 1
    extent = elements[place]
    longest = max(1, min(most // inner, extent))
    divisor = next((n for n in range(longest, longest // 2, -1) if extent % n == 0), None)
    run = divisor or longest
    count, rest = divmod(extent, run)
    whole = Cut(chunks=(*elements[:place], count), sizes=(run, *elements[place + 1 :]), begin=0)
    if not rest:
        return (whole,)
    sizes = (rest, *elements[place + 1 :])
    return (whole, Cut(chunks=tuple(elements[:place]), sizes=sizes, begin=count * run))


class ChunkedRows:
    """Writes the nests of one pair.

    Args:
        keep_first: somebody else reads the first result.
    """

    def __init__(self, builder: Builder, pair: Pair, most: int, *, keep_first: bool) -> None:
        self.builder, self.sdfg, self.pair, self.keep_first = builder, builder.sdfg, pair, keep_first
        self.cuts = cut(pair.elements, most)
        self.kept = self.sdfg.arrays[pair.first.target].dtype
        self.wide, self.sums = pair.first.total.dtype, pair.second.total.dtype
        self.same_type = self.wide == pair.shifts[0].dtype
        self.local: dict[str, tuple[tuple[Index, ...], DType]] = {}

    def emit(self) -> tuple[str, ...]:
        """Add a nest for each kind of chunk, and one that puts the chunks of a row together.

        Returns:
            the arrays between them.
        """
        parts = [self._sweep(part) for part in self.cuts]
        self._put_together(parts)
        return tuple(array for part in parts for array in part.values())

    def _sweep(self, part: Cut) -> dict[str, str]:
        """The nest over chunks; what it writes, by name."""
        pair, rows = self.pair, len(self.pair.rows)
        params = points(rows + len(part.chunks))
        inner = loop_parameters(len(part.sizes), len(part.sizes))
        names = _element_names(part, params[rows:], inner)
        operator: Operator = "max" if pair.kind == "exponentials" else "sum"
        first, second = self._local("first", self.wide), self._local("second", self.sums)
        shift = self._local("shift", pair.shifts[0].dtype)
        terms = replace_parts(pair.second.terms, {id(node): shift for node in pair.shifts})
        sums = {"second": second}
        writes = [_write(second, substitute(terms, names), "sum")]
        if pair.kind == "squares" and self.same_type:
            sums["rest"] = self._local("rest", self.wide)
            writes.append(_write(sums["rest"], substitute(pair.first.terms - shift, names), "sum"))
        loops = [
            _start(first, operator),
            _over(inner, part.sizes, [_write(first, substitute(pair.first.terms, names), operator)]),
            _once(shift, self._shift(first, math.prod(part.sizes))),
            *(_start(total, "sum") for total in sums.values()),
            _over(inner, part.sizes, writes),
        ]
        given = {"first": first, **sums, **({"shift": shift} if "rest" in sums else {})}
        box = (*pair.rows, *part.chunks)
        arrays: dict[str, str] = {}
        for name, value in given.items():
            arrays[name], _ = self.sdfg.add_transient(
                f"{pair.second.target}_{name}_of_chunks", box or (1,), value.dtype, find_new_name=True
            )
            loops.append(_single(Write(target=arrays[name], index=params or (0,), value=value)))
        self._emit(f"{pair.second.label}_chunks", params, box, loops)
        return arrays

    def _shift(self, first: Scalar, count: int) -> Scalar:
        """What is taken off every element of a chunk: its mean, or its maximum where that is finite."""
        dtype = self.pair.shifts[0].dtype
        if self.pair.kind == "squares":
            return cast(first / literal(float(count), self.wide), dtype)
        return cast(apply("where", apply("isinf", first), 0.0, first), dtype)

    def _local(self, name: str, dtype: DType) -> Scalar:
        """A new number of a point, under a name that no array has."""
        name = f"{self.pair.second.target}_{name}"
        while name in self.sdfg.arrays:
            name += "_"
        self.local[name] = ((1,), dtype)
        return Scalar("read", dtype, data=(name, (0,)))

    def _put_together(self, parts: Sequence[dict[str, str]]) -> None:
        pair, rows = self.pair, len(self.pair.rows)
        params = points(rows)
        squares = pair.kind == "squares"
        operator: Operator = "sum" if squares else "max"
        first, second = self._local("first", self.wide), self._local("second", self.sums)
        kept = self._local("kept", self.kept)
        of_row = {id(node): kept for node in pair.firsts}
        result = replace_parts(pair.first.result, {id(pair.first.total): first})
        loops = [
            _start(first, operator),
            *(self._chunks(part, _write(first, of("first"), operator)) for part, of in self._with(parts)),
            _once(kept, cast(result, self.kept)),
            _start(second, "sum"),
        ]
        if squares:
            mean = self._local("mean", self.wide)
            loops.append(_once(mean, first / literal(float(math.prod(pair.elements)), self.wide)))
            shares = [self._squares(part, of, mean) for part, of in self._with(parts)]
        else:
            far = replace_parts(pair.shifts[0], of_row)
            shares = [
                of("second") * cast(apply("exp", cast(of("first"), far.dtype) - far), self.sums)
                for _, of in self._with(parts)
            ]
        loops += [
            self._chunks(part, _write(second, share, "sum"))
            for part, share in zip(self.cuts, shares, strict=True)
        ]
        if self.keep_first:
            loops.append(_single(Write(target=pair.first.target, index=pair.first.index, value=kept)))
        result = replace_parts(pair.second.result, {id(pair.second.total): second, **of_row})
        loops.append(_single(Write(target=pair.second.target, index=pair.second.index, value=result)))
        self._emit(f"{pair.second.label}_rows", params, pair.rows, loops)

    def _with(self, parts: Sequence[dict[str, str]]) -> list[tuple[Cut, Callable[[str], Scalar]]]:
        """Kinds of chunks, and how to read what one chunk has of a result."""
        return [(part, self._reader(part, names)) for part, names in zip(self.cuts, parts, strict=True)]

    def _reader(self, part: Cut, arrays: dict[str, str]) -> Callable[[str], Scalar]:
        inner = loop_parameters(len(part.chunks), len(part.chunks))
        index = (*points(len(self.pair.rows)), *inner) or (0,)

        def of(name: str) -> Scalar:
            desc = self.sdfg.arrays[arrays[name]]
            return read(arrays[name], desc.dtype, index, tuple(desc.shape))

        return of

    def _squares(self, part: Cut, of: Callable[[str], Scalar], mean: Scalar) -> Scalar:
        """Squares of deviations from the mean of the row."""
        size = literal(float(math.prod(part.sizes)), self.wide)
        near = of("shift") - mean + of("rest") / size if self.same_type else None
        apart = of("first") / size - mean if near is None else near
        return of("second") + cast(size * (apart * apart), self.sums)

    def _chunks(self, part: Cut, write: Write) -> Loop:
        """The loop over the chunks of a row."""
        return _over(loop_parameters(len(part.chunks), len(part.chunks)), part.chunks, [write])

    def _emit(
        self, label: str, params: tuple[Index, ...], extents: tuple[int, ...], loops: Sequence[Loop]
    ) -> None:
        """Adds a nest with the numbers of a point that were asked for since the last one."""
        nest = Nest(label=label, params=params, extents=extents, loops=tuple(loops), local=self.local)
        self.local = {}
        emit_nest(self.builder, read_points_once(in_lanes(self.sdfg, nest)))


def element_parameters(count: int) -> tuple[Index, ...]:
    """Parameters of the elements of a row in `Reduced`; rows have those of `points`."""
    return loop_parameters(count, count)


def _element_names(part: Cut, chunk: Sequence[Index], inner: Sequence[Index]) -> dict[str, Index]:
    """Parameter of an element -> its place, from those of the chunk and of the element in it."""
    cut_at = len(part.chunks) - (0 if part.begin else 1)
    begin = part.begin or chunk[cut_at] * part.sizes[0]
    places = [*chunk[:cut_at], begin + inner[0], *inner[1:]]
    return {str(p): place for p, place in zip(element_parameters(len(places)), places, strict=True)}


def _start(number: Scalar, operator: Operator) -> Loop:
    return start(number.data[0], (1,), number.dtype, operator)


def _write(number: Scalar, value: Scalar, operator: Operator | None = None) -> Write:
    """Into a number of a point."""
    return Write(target=number.data[0], index=(0,), value=value, operator=operator)


def _single(write: Write) -> Loop:
    return Loop(params=(), extents=(), writes=(write,))


def _once(number: Scalar, value: Scalar) -> Loop:
    return _single(_write(number, value))


def _over(params: Sequence[Index], extents: Sequence[int], writes: Sequence[Write]) -> Loop:
    return Loop(params=tuple(params), extents=tuple(extents), writes=tuple(writes), sequential=len(params))

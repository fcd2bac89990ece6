"""Sums of columns beside the loop that goes through the same rows: what one of them reads is there for both.

for each row i:    Y[i, j] = f(X[i, j]) for each j           for each chunk of rows:
for each column j: s[j] = sum over i of Y[i, j]        ->        for each row i of it, for each j:
                                                                     y = f(X[i, j]); Y[i, j] = y; acc[j] += y
                                                                 share[chunk, j] = acc[j] for each j
                                                             s[j] = sum over chunks of share[chunk, j]

Gradients of biases, and of the scales of normalizations, are such sums. How rows are cut into chunks follows
from their number, not from the number of threads: the order of additions is part of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dace
from dace import symbolic

from daceml.sdfg.nest import (
    Chunks,
    Loop,
    Nest,
    Write,
    hand_over,
    is_small,
    loop_parameters,
    points,
    points_of_chunks,
    start,
)
from daceml.sdfg.scalar import DType, Index, read
from daceml.sdfg.scalar_rewrite import as_index, free_names, nodes_of, rename, replace_parts, substitute
from daceml.sdfg.sizes import product, size
from daceml.transformations.local.fusion_groups import Axis, Group, hands_over, join
from daceml.transformations.local.fusion_judge import LOCAL_BYTES, Judge
from daceml.transformations.local.members import Member, places

# Chunks that a loop over rows is cut into, and rows that a chunk should have: its share of a sum is small
# beside what it reads
_MOST_CHUNKS, _FEWEST_ROWS = 64, 16
_FEWEST_CHUNKS = 8
# Of rows whose number is not known, and where further dimensions of them follow
_UNKNOWN_CHUNKS, _UNKNOWN_LEADING_CHUNKS = 32, 8
# Columns that a row should have, to be gone through in vectors
FEWEST_COLUMNS = 16
# A sum beside nothing gains where what it reads is in no near cache
_LONE_BYTES = 2**22
# Columns that are added up together in the end
_RUN = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnSum:
    """`result = f(sum over rows of terms)`, for every column.

    Attributes:
        terms: adds up over rows.
        result: what is made of the sum of a column.
    """

    terms: Member
    result: Member

    @property
    def shape(self) -> tuple[Index, ...]:
        """Of the columns."""
        return self.terms.extents


def column_sum(sdfg: dace.SDFG, group: Group | None) -> ColumnSum | None:
    """The sum of columns that a map is; None where it is something else."""
    if group is None or len(group.members) != 2:
        return None
    terms, result = group.members
    if (
        terms.operator != "sum"
        or result.operator is not None
        or list(result.reads.get(terms.target, ())) != [terms.index]
    ):
        return None
    if str(terms.params) != str(result.params) or not any(e != 1 for e in terms.reduced_extents):
        return None
    return ColumnSum(terms=terms, result=result) if _lie_in_rows(sdfg, terms) else None


def _lie_in_rows(sdfg: dace.SDFG, terms: Member) -> bool:
    """Whether what follows rows and columns has the columns of a row side by side in memory."""
    columns, rows = set(map(str, terms.params)), set(map(str, terms.reduced))
    along = False
    for array, indices in terms.reads.items():
        for index in indices:
            if index is None:
                return False
            if array not in sdfg.arrays:
                return False
            desc = sdfg.arrays[array]
            inside: list[int] = []
            across: list[Index] = []
            found = places(index, (*terms.params, *terms.reduced))
            for at, place, stride, extent in zip(index, found, desc.strides, desc.shape, strict=True):
                if extent == 1 or not free_names(at) & (columns | rows):
                    continue
                if place is None:
                    return False
                if place[0] in rows:
                    across.append(stride)
                elif not isinstance(stride, int):
                    return False
                else:
                    inside.append(stride)
            if inside and across:
                if min(inside) != 1 or any(isinstance(s, int) and s < max(inside) for s in across):
                    return False
                along = True
    return along


def alone(judge: Judge, found: ColumnSum) -> Group | str:
    """A loop over rows for a sum of its own, or why it stays as it is."""
    large = max(map(judge.bytes_of, found.terms.reads))
    if large < _LONE_BYTES:
        return f"its rows have {large} bytes, which stay in a near cache"
    return _checked(judge, _over_rows(found))


def beside(judge: Judge, host: Group, found: ColumnSum) -> Group | str:
    """A group with a sum over its points, or why they stay apart."""
    terms = found.terms
    shared = [a for a in terms.reads if a in host.arrays]
    largest = max(map(judge.bytes_of, terms.reads))
    if not any(judge.bytes_of(a) == largest for a in shared):
        return "they go through different arrays"
    for array in terms.reads:
        if array not in host.arrays and 2 * judge.bytes_of(array) > largest:
            return f"what the loop has to itself would have to wait for {array}"
    if hands_over(_over_rows(found), host):
        return "the rows need the sum"
    group = join(host, _over_rows(found))
    if len(group.axes) < sum(e != 1 for e in terms.reduced_extents):
        return "they share no rows"
    return _checked(judge, group)


def _over_rows(found: ColumnSum) -> Group:
    """The sum alone, with its rows as points."""
    terms = found.terms
    box = zip(terms.reduced, terms.reduced_extents, strict=True)
    axes = tuple(Axis(extent=e, params={terms: str(p)}) for p, e in box if e != 1)
    return Group(members=(terms,), axes=axes)


def _checked(judge: Judge, group: Group) -> Group | str:
    for terms in group.sums:
        shape = ", ".join(map(str, terms.extents))
        if not is_small(terms.extents, terms.dtype, LOCAL_BYTES):
            return f"each chunk of rows would keep [{shape}] sums"
        if terms.extents[-1] < FEWEST_COLUMNS:
            return f"rows of [{shape}] columns are too short"
    chunks = _cut([axis.extent for axis in group.axes])
    if isinstance(chunks, str):
        return chunks
    return judge.refusal(group) or group


def _cut(extents: Sequence[Index]) -> list[Index] | str:
    """How many chunks each axis of points is cut into, or why there are too few points.

    Leading axes first: the points of a chunk follow each other in memory.
    """
    known = product(size(e) for e in extents if isinstance(e, int))
    if all(isinstance(e, int) for e in extents):
        assert isinstance(known, int)
        left = min(_MOST_CHUNKS, known // _FEWEST_ROWS)
        if left < _FEWEST_CHUNKS:
            return f"{known} rows are too few to go through in chunks"
    else:
        left = _UNKNOWN_CHUNKS
    counts: list[Index] = []
    for place, extent in enumerate(extents):
        if isinstance(extent, int):
            count = _count(extent, left)
        else:
            last = all(e == 1 for e in extents[place + 1 :])
            count = left if last else min(left, _UNKNOWN_LEADING_CHUNKS)
        counts.append(count)
        left = max(1, left // count)
    return counts


def _count(extent: int, most: int) -> int:
    """Into how many chunks an axis is cut: equal ones, if there are some that are not much fewer."""
    if extent <= most:
        return extent
    even = max(n for n in range(1, most + 1) if extent % n == 0)
    return even if 2 * even > most else -(-extent // -(-extent // most))


def in_chunks(
    sdfg: dace.SDFG, nest: Nest, sums: Sequence[ColumnSum], *, run: int = _RUN
) -> tuple[Chunks, list[Nest]]:
    """The nest in chunks, which write their shares of the sums, and the nests that add these up.

    Args:
        sums: over all points of the nest. Their shares become arrays of the network.
        run: columns that are added up together in the end.
    """
    counts = _cut(nest.extents)
    assert not isinstance(counts, str), counts
    outer, inner = points(len(counts)), points_of_chunks(len(counts))
    chunks: list[tuple[Index, Index]] = []
    within: list[tuple[Index, Index]] = []
    names: dict[str, Index] = {}
    for param, extent, count in zip(nest.params, nest.extents, counts, strict=True):
        chunk, point = outer[len(chunks)], inner[len(within)]
        if count == 1:
            within.append((point, extent))
            names[str(param)] = point
        elif count == extent:
            chunks.append((chunk, extent))
            names[str(param)] = chunk
        else:
            symbolic_size = not isinstance(extent, int)
            rows = symbolic.int_ceil(extent, count) if symbolic_size else -(-extent // count)
            left = extent - chunk * rows
            even = not symbolic_size and extent % count == 0
            chunks.append((chunk, count))
            within.append((point, rows if even else symbolic.sympy.Min(rows, left)))
            names[str(param)] = chunk * rows + point
    if not within:
        within.append((inner[0], 1))
    if not chunks:
        chunks.append((outer[0], 1))
    shape = tuple(count for _, count in chunks)
    shares: dict[str, tuple[tuple[Index, ...], DType]] = {}
    last: list[Loop] = []
    totals: list[Nest] = []
    for found in sums:
        terms = found.terms
        share, _ = sdfg.add_transient(
            f"{found.result.target}_shares", (*shape, *found.shape), terms.dtype, find_new_name=True
        )
        shares[terms.target] = (found.shape, terms.dtype)
        last.append(hand_over(terms.target, found.shape, terms.dtype, share, tuple(c for c, _ in chunks)))
        totals.append(_total(found, share, shape, run))
    nest = replace(
        nest,
        params=tuple(p for p, _ in chunks),
        extents=shape,
        loops=tuple(_renamed(loop, names) for loop in nest.loops),
    )
    params, extents = tuple(p for p, _ in within), tuple(e for _, e in within)
    return Chunks(nest=nest, params=params, extents=extents, sums=shares, last=tuple(last)), totals


def side_by_side(nests: Sequence[Nest]) -> list[Nest]:
    """Nests over equal boxes as one."""
    joined: dict[tuple[Index, ...], Nest] = {}
    for nest in nests:
        known = joined.get(nest.extents)
        if known is not None:
            local = {**known.local, **nest.local}
            nest = replace(known, loops=(*known.loops, *nest.loops), local=local)
        joined[nest.extents] = nest
    return list(joined.values())


def _renamed(loop: Loop, names: dict[str, Index]) -> Loop:
    return replace(
        loop,
        extents=tuple(rename(e, names) for e in loop.extents),
        writes=tuple(
            replace(
                write,
                index=tuple(as_index(rename(i, names)) for i in write.index),
                value=substitute(write.value, names),
            )
            for write in loop.writes
        ),
    )


def _total(found: ColumnSum, share: str, chunks: Sequence[Index], most: int) -> Nest:
    """The nest over runs of columns that adds up what chunks have written."""
    result, dtype = found.result, found.terms.dtype
    columns = found.shape
    width = columns[-1]
    run = most if width % most == 0 else width
    outer = points(len(columns))
    added = loop_parameters(len(chunks), len(chunks) + 1)
    (column,) = loop_parameters(0, 1)

    def at(place: Index) -> tuple[Index, ...]:
        return (*outer[:-1], as_index(outer[-1] * run + place))

    share_shape = (*chunks, *columns)
    one = read(share, dtype, (*added[:-1], *at(added[-1])), share_shape)
    name = f"{found.terms.target}_total"
    kept = read(name, dtype, (column,), (run,))
    of_terms = {
        id(n): kept for n in nodes_of(result.value) if n.op == "read" and n.data[0] == found.terms.target
    }
    names = dict(zip(map(str, result.params), at(column), strict=True))
    written = Write(
        target=result.target,
        index=tuple(as_index(rename(i, names)) for i in result.index),
        value=substitute(replace_parts(result.value, of_terms), names),
    )
    return Nest(
        label=result.label,
        params=outer,
        extents=(*columns[:-1], width // run),
        loops=(
            start(name, (run,), dtype, "sum"),
            Loop(
                params=added,
                extents=(*chunks, run),
                writes=(Write(target=name, index=(added[-1],), value=one, operator="sum"),),
                sequential=len(chunks),
            ),
            Loop(params=(column,), extents=(run,), writes=(written,)),
        ),
        local={name: ((run,), dtype)},
    )

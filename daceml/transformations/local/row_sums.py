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

import math
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
from daceml.sdfg.scalar import DType, Index, Scalar, read
from daceml.sdfg.scalar_rewrite import as_index, free_names, nodes_of, rename, replace_parts, substitute
from daceml.transformations.local.fusion_groups import Axis, Group, hands_over, join
from daceml.transformations.local.fusion_judge import LOCAL_BYTES, Judge
from daceml.transformations.local.members import Member, places
from daceml.transformations.local.row_chunks import MOST_CHUNKS, cut

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
        return f"its rows have {large} bytes, which fit in a near cache"
    return _checked(judge, _over_rows(found))


def beside(judge: Judge, host: Group, found: ColumnSum) -> Group | str:
    """A group with a sum over its points, or why they stay apart."""
    terms = found.terms
    shared = [a for a in terms.reads if a in host.arrays]
    largest = max(map(judge.bytes_of, terms.reads))
    if not any(judge.bytes_of(a) == largest for a in shared):
        return "they iterate over different arrays"
    for array in terms.reads:
        if array not in host.arrays and 2 * judge.bytes_of(array) > largest:
            return f"results of the map alone would be delayed until {array} is computed"
    if hands_over(_over_rows(found), host):
        return "the rows read the sum"
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
    chunks = cut([axis.extent for axis in group.axes])
    if isinstance(chunks, str):
        return chunks
    return judge.refusal(group) or group


def in_chunks(
    sdfg: dace.SDFG, nest: Nest, sums: Sequence[ColumnSum], *, most: int = MOST_CHUNKS, run: int = _RUN
) -> tuple[Chunks, list[Nest]]:
    """The nest in chunks, which write their shares of the sums, and for each sum the nest that adds these up.

    Args:
        sums: over all points of the nest. Their shares become arrays of the network.
        most: chunks in all.
        run: columns that are added up together in the end; with 1, threads may divide the shares of a column.
    """
    counts = cut(nest.extents, most)
    assert not isinstance(counts, str), counts
    outer, inner = points(len(counts)), points_of_chunks(len(counts))
    chunks: list[tuple[Index, int]] = []
    within: list[tuple[Index, Index]] = []
    names: dict[str, Index] = {}
    number: Index = 0
    for param, extent, count in zip(nest.params, nest.extents, counts, strict=True):
        point = inner[len(within)]
        if count == 1:
            within.append((point, extent))
            names[str(param)] = point
            continue
        chunk = outer[len(chunks)]
        chunks.append((chunk, count))
        number = number * count + chunk
        if count == extent:
            names[str(param)] = chunk
            continue
        symbolic_size = not isinstance(extent, int)
        rows = symbolic.int_ceil(extent, count) if symbolic_size else -(-extent // count)
        left = extent - chunk * rows
        even = not symbolic_size and extent % count == 0
        within.append((point, rows if even else symbolic.sympy.Min(rows, left)))
        names[str(param)] = chunk * rows + point
    if not within:
        within.append((inner[0], 1))
    if not chunks:
        chunks.append((outer[0], 1))
    total = math.prod(count for _, count in chunks)
    shares: dict[str, tuple[tuple[Index, ...], DType]] = {}
    last: list[Loop] = []
    totals: list[Nest] = []
    for found in sums:
        terms = found.terms
        share, _ = sdfg.add_transient(
            f"{found.result.target}_shares", (total, *found.shape), terms.dtype, find_new_name=True
        )
        shares[terms.target] = (found.shape, terms.dtype)
        last.append(hand_over(terms.target, found.shape, terms.dtype, share, (number,)))
        totals.append(_total_of_column(found, share, total) if run == 1 else _total(found, share, total, run))
    nest = replace(
        nest,
        params=tuple(p for p, _ in chunks),
        extents=tuple(count for _, count in chunks),
        loops=tuple(_renamed(loop, names) for loop in nest.loops),
    )
    params, extents = tuple(p for p, _ in within), tuple(e for _, e in within)
    return Chunks(nest=nest, params=params, extents=extents, sums=shares, last=tuple(last)), totals


def side_by_side(nests: Sequence[Nest]) -> list[Nest]:
    """Nests over equal boxes as one, where none of them reads what another one writes."""
    joined: list[Nest] = []
    for nest in nests:
        place = next((n for n, known in enumerate(joined) if known.extents == nest.extents), None)
        written = {w.target for known in joined[place or 0 :] for loop in known.loops for w in loop.writes}
        if place is None or written & _reads(nest):
            joined.append(nest)
            continue
        known = joined[place]
        local = {**known.local, **nest.local}
        joined[place] = replace(known, loops=(*known.loops, *nest.loops), local=local)
    return joined


def _reads(nest: Nest) -> set[str]:
    """Arrays of the network that a nest reads."""
    nodes = (n for loop in nest.loops for write in loop.writes for n in nodes_of(write.value))
    return {n.data[0] for n in nodes if n.op == "read"} - nest.local.keys()


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


def _total_of_column(found: ColumnSum, share: str, chunks: int) -> Nest:
    """The nest over columns that adds up what chunks have written, in an order that threads may divide."""
    result, dtype, columns = found.result, found.terms.dtype, found.shape
    outer, (chunk,) = points(len(columns)), loop_parameters(1, 1)
    name = f"{found.terms.target}_total"
    one = read(share, dtype, (chunk, *outer), (chunks, *columns))
    added = Write(target=name, index=(0,), value=one, operator="sum")
    return Nest(
        label=result.label,
        params=outer,
        extents=columns,
        loops=(
            start(name, (1,), dtype, "sum"),
            Loop(params=(chunk,), extents=(chunks,), writes=(added,), sequential=1),
            Loop(params=(), extents=(), writes=(_made_of(found, read(name, dtype, (0,), (1,)), outer),)),
        ),
        local={name: ((1,), dtype)},
    )


def _made_of(found: ColumnSum, total: Scalar, columns: Sequence[Index]) -> Write:
    """The result for a column, from its sum."""
    result = found.result
    of_terms = {
        id(n): total for n in nodes_of(result.value) if n.op == "read" and n.data[0] == found.terms.target
    }
    names = dict(zip(map(str, result.params), columns, strict=True))
    return Write(
        target=result.target,
        index=tuple(as_index(rename(i, names)) for i in result.index),
        value=substitute(replace_parts(result.value, of_terms), names),
    )


def _total(found: ColumnSum, share: str, chunks: int, most: int) -> Nest:
    """The nest over runs of columns that adds up what chunks have written."""
    result, dtype = found.result, found.terms.dtype
    columns = found.shape
    width = columns[-1]
    run = most if width % most == 0 else width
    outer = points(len(columns))
    added = loop_parameters(1, 2)
    (column,) = loop_parameters(0, 1)

    def at(place: Index) -> tuple[Index, ...]:
        return (*outer[:-1], as_index(outer[-1] * run + place))

    one = read(share, dtype, (added[0], *at(added[-1])), (chunks, *columns))
    name = f"{found.terms.target}_total"
    written = _made_of(found, read(name, dtype, (column,), (run,)), at(column))
    return Nest(
        label=result.label,
        params=outer,
        extents=(*columns[:-1], width // run),
        loops=(
            start(name, (run,), dtype, "sum"),
            Loop(
                params=added,
                extents=(chunks, run),
                writes=(Write(target=name, index=(added[-1],), value=one, operator="sum"),),
                sequential=1,
            ),
            Loop(params=(column,), extents=(run,), writes=(written,)),
        ),
        local={name: ((run,), dtype)},
    )

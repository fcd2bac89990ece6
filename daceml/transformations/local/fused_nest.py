"""A group of members as one nest: which values are computed again, which loops they share, what is kept.

1. A value that is cheap, or that is read once, is computed where it is read.
2. Members with equal boxes go into one loop, where every value is computed once.
3. What a later loop reads is kept in a local array of its point.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import dace
import sympy
from dace import symbolic

from daceml.sdfg.nest import Loop, Nest, Write, loop_parameters, points, start
from daceml.sdfg.scalar import DType, Index, Scalar, read
from daceml.sdfg.scalar_rewrite import as_index, nodes_of, rename, replace_parts, substitute
from daceml.transformations.local.fusion_groups import (
    Group,
    computed_again,
    local_dimensions,
    local_shape,
    solvable,
)
from daceml.transformations.local.members import Member, places

_LONGEST_LABEL = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """A member under the names of its nest.

    Attributes:
        index: of the target, over the nest's parameters and its own.
        params, extents: the box inside a point; what belongs to a reduction comes first.
        sequential: how many parameters belong to a reduction.
        value: over the same parameters.
        over_points: it adds up what the points of the nest give.
    """

    member: Member
    over_points: bool
    index: tuple[Index, ...]
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    sequential: int
    value: Scalar

    @property
    def target(self) -> str:
        return self.member.target

    @property
    def accumulates(self) -> bool:
        """Whether it adds up inside a point."""
        return self.member.operator is not None and not self.over_points


def nest_of(sdfg: dace.SDFG, group: Group, needed: Collection[str]) -> Nest:
    """The nest that does what a group does; sums over its points are targets that it has not got.

    Args:
        needed: targets that somebody outside the group reads.
    """
    parts = _with_values_computed_again(_parts(sdfg, group), group, needed)
    loops = _loops(parts, group)
    return _written(sdfg, group, loops, needed)


def _parts(sdfg: dace.SDFG, group: Group) -> list[_Part]:
    outer = points(len(group.axes))
    parts: list[_Part] = []
    for number, member in enumerate(group.members):
        names: dict[str, Index] = {axis.params[member]: o for axis, o in zip(group.axes, outer, strict=True)}
        reduced = zip(member.reduced, member.reduced_extents, strict=True)
        box = (*reduced, *zip(member.params, member.extents, strict=True))
        extents = {str(p): e for p, e in box}
        names |= {p: 0 for p, e in extents.items() if e == 1}
        own = [p for p, _ in box if str(p) not in names]
        sequential = sum(str(p) not in names for p in member.reduced)
        if not _writes_in_order(member):
            first = sorted(own[:sequential], key=lambda p: -_stride(sdfg, member, str(p)))
            rest = sorted(own[sequential:], key=lambda p: -_stride(sdfg, member, str(p)))
            own = [*first, *rest]
        fresh = {str(p): symbolic.symbol(f"w{number}_{d}") for d, p in enumerate(own)}
        names |= fresh
        parts.append(
            _Part(
                member=member,
                over_points=group.adds_up_points(member),
                index=tuple(rename(i, names) for i in member.index),
                params=tuple(fresh[str(p)] for p in own),
                extents=tuple(extents[str(p)] for p in own),
                sequential=sequential,
                value=substitute(member.value, names),
            )
        )
    return parts


def _writes_in_order(member: Member) -> bool:
    """Whether the last dimension of the target is the last parameter: then the box is in order of memory."""
    return member.operator is None and bool(member.params) and member.index[-1] == member.params[-1]


def _stride(sdfg: dace.SDFG, member: Member, param: str) -> int:
    """How far apart in memory the elements of two neighbours are, in the access that is spread the widest."""
    widest = 0
    accesses = [(a, i) for a, indices in member.reads.items() for i in indices if i is not None]
    for array, index in [*accesses, (member.target, member.index)]:
        if array not in sdfg.arrays:
            continue
        step = sum(
            (
                _coefficient(place, param) * (stride if isinstance(stride, int) else 2**40)
                for place, stride in zip(index, sdfg.arrays[array].strides, strict=True)
            ),
            start=0,
        )
        widest = max(widest, step)
    return widest


def _coefficient(index: Index, param: str) -> int:
    """How far an index moves with a parameter; 0 where that differs from place to place."""
    if isinstance(index, int):
        return 0
    symbol = next((s for s in index.free_symbols if str(s) == param), None)
    if symbol is None:
        return 0
    step = sympy.expand(index.subs(symbol, symbol + 1) - index)
    return abs(int(step)) if step.is_Integer else 0


def _with_values_computed_again(parts: list[_Part], group: Group, needed: Collection[str]) -> list[_Part]:
    """Cheap values, and values that are read once, put where they are read; members left without a reader
    go."""
    again, done = computed_again(group), dict[str, _Part]()
    for part in parts:
        given = {t: p for t, p in done.items() if t in again}
        done[part.target] = replace(part, value=_inlined(part.value, given))
    while True:
        counts = _read_counts(done.values())
        kept = {t: p for t, p in done.items() if t in needed or p.over_points or counts.get(t)}
        once = {
            t: p
            for t, p in kept.items()
            if counts.get(t) == 1 and t not in needed and p.member.operator is None and solvable(p.member)
        }

        def same_size(part: _Part, reader: _Part) -> bool:
            return str(sorted(map(str, part.extents))) == str(sorted(map(str, reader.extents)))

        changed: dict[str, _Part] = {}
        for target, part in kept.items():
            near = {t: p for t, p in once.items() if t != target and same_size(p, part)}
            value = _inlined(part.value, near)
            changed[target] = part if value is part.value else replace(part, value=value)
        same = len(kept) == len(done) and all(changed[t] is kept[t] for t in kept)
        done = changed
        if same:
            return list(done.values())


def _read_counts(parts: Iterable[_Part]) -> dict[str, int]:
    """Target -> in how many places it is read."""
    counts: dict[str, int] = {}
    for part in parts:
        for node in nodes_of(part.value):
            if node.op in ("read", "gather"):
                counts[node.data[0]] = counts.get(node.data[0], 0) + 1
    return counts


def _inlined(value: Scalar, given: Mapping[str, _Part]) -> Scalar:
    """The value with reads of given targets replaced by what is written there."""
    replaced: dict[int, Scalar] = {}
    known: dict[str, Scalar] = {}
    for node in nodes_of(value):
        if node.op == "read" and node.data[0] in given:
            key = str(node.data)
            if key not in known:
                known[key] = _value_at(given[node.data[0]], node.data[1])
            replaced[id(node)] = known[key]
    return replace_parts(value, replaced) if replaced else value


def _value_at(part: _Part, index: Sequence[Index]) -> Scalar:
    """What a part writes at an index."""
    names: dict[str, Index] = {}
    for place, at in zip(places(part.index, part.params), index, strict=True):
        if place is not None:
            names[place[0]] = sympy.expand(sympy.sympify(at) - place[1]) if place[1] != 0 else at
    for param, extent in zip(part.params, part.extents, strict=True):
        if extent == 1:
            names.setdefault(str(param), 0)
    return substitute(part.value, {name: as_index(i) for name, i in names.items()})


@dataclass(kw_only=True)
class _SharedLoop:
    """Parts that go through one box."""

    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    sequential: int
    accumulates: bool
    parts: list[_Part] = field(default_factory=list["_Part"])

    def takes(self, part: _Part) -> bool:
        """Whether a part has the same box."""
        return (
            self.accumulates == part.accumulates
            and self.sequential == part.sequential
            and [str(e) for e in self.extents] == [str(e) for e in part.extents]
        )

    def renamed(self, part: _Part) -> _Part:
        """A part under the parameters of this loop."""
        names = dict(zip(map(str, part.params), self.params, strict=True))
        return replace(
            part,
            params=self.params,
            index=tuple(rename(i, names) for i in part.index),
            value=substitute(part.value, names),
        )


def _loops(parts: Sequence[_Part], group: Group) -> list[_SharedLoop]:
    """Loops in order; a part goes into the first one of its box that comes late enough."""
    loops: list[_SharedLoop] = []
    at: dict[str, int] = {}
    for part in parts:
        earliest, same = 0, -1
        for array in _read_counts([part]):
            if array not in at:
                continue
            if _same_point(loops[at[array]], part, array):
                earliest, same = max(earliest, at[array]), max(same, at[array])
            else:
                earliest = max(earliest, at[array] + 1)
        place = next((n for n in range(earliest, len(loops)) if loops[n].takes(part)), None)
        if place is None:
            loops.append(
                _SharedLoop(
                    params=part.params, extents=part.extents, sequential=part.sequential,
                    accumulates=part.accumulates,
                )
            )  # fmt: skip
            place = len(loops) - 1
        loop = loops[place]
        part = loop.renamed(part)
        inside = {p.target: p for p in loop.parts if not loop.accumulates}
        loop.parts.append(replace(part, value=_inlined(part.value, inside)))
        at[part.target] = place
    return loops


def _same_point(loop: _SharedLoop, part: _Part, array: str) -> bool:
    """Whether a part reads of an array only what the same iteration of a loop writes."""
    if loop.accumulates or not loop.takes(part):
        return False
    (writer,) = (p for p in loop.parts if p.target == array)
    names = dict(zip(map(str, part.params), loop.params, strict=True))
    indices = [n.data[1] for n in nodes_of(part.value) if n.op == "read" and n.data[0] == array]
    gathered = any(n.op == "gather" and n.data[0] == array for n in nodes_of(part.value))
    return not gathered and all(
        [str(rename(i, names)) for i in index] == [str(i) for i in writer.index] for index in indices
    )


def _written(sdfg: dace.SDFG, group: Group, loops: Sequence[_SharedLoop], needed: Collection[str]) -> Nest:
    """The nest: loops with what they write, starts of accumulators, and local arrays for what is read
    later."""
    local: dict[str, tuple[tuple[Index, ...], DType]] = {}
    names: dict[str, str] = {}
    dimensions: dict[str, tuple[int, ...]] = {}
    read_later = {a for loop in loops for part in loop.parts for a in _read_counts([part])}
    for loop in loops:
        for part in loop.parts:
            target, member = part.target, part.member
            if part.over_points or (member.operator is None and target not in read_later):
                continue
            names[target] = f"{target}_local" if target in sdfg.arrays else target
            dimensions[target] = local_dimensions(group, member)
            local[names[target]] = (local_shape(group, member) or (1,), member.dtype)

    def localised(index: Sequence[Index], target: str) -> tuple[Index, ...]:
        return tuple(index[d] for d in dimensions[target]) or (0,)

    def kept(node: Scalar) -> Scalar:
        """What a local array has of an element."""
        target, index = node.data
        found = read(names[target], node.dtype, localised(index, target), local[names[target]][0])
        return found.args[0] if found.op == "cast" else found  # what widens a half stands there already

    found: list[Loop] = []
    for loop in loops:
        params = loop_parameters(loop.sequential, len(loop.params))
        renaming = dict(zip(map(str, loop.params), params, strict=True))
        writes: list[Write] = []
        for part in loop.parts:
            replaced = {id(n): kept(n) for n in nodes_of(part.value) if n.op == "read" and n.data[0] in names}
            value = substitute(replace_parts(part.value, replaced), renaming)
            index = tuple(rename(i, renaming) for i in part.index)
            if part.target in names:
                name = names[part.target]
                shape, dtype = local[name]
                operator = part.member.operator
                if operator is not None:
                    found.append(start(name, shape, dtype, operator))
                at = localised(index, part.target)
                writes.append(Write(target=name, index=at, value=value, operator=operator))
            if part.over_points:
                writes.append(Write(target=part.target, index=index or (0,), value=value, operator="sum"))
            if part.target in needed:
                writes.append(Write(target=part.target, index=index, value=value))
        found.append(
            Loop(params=params, extents=loop.extents, writes=tuple(writes), sequential=loop.sequential)
        )
    return Nest(
        label=_label(group),
        params=points(len(group.axes)),
        extents=tuple(axis.extent for axis in group.axes),
        loops=tuple(found),
        local=local,
    )


def _label(group: Group) -> str:
    labels = list(dict.fromkeys(part for m in group.members for part in m.label.split("_")))
    label = "_".join(labels)
    return label if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]}_etc"

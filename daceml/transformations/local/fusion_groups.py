"""Which maps may become one: groups of members, with the iterations that all of them share.

Members of one group run for each point of the shared iterations, one after the other. What one of them
writes, another may read in the same point only. So iterations are shared where the element that is read lies
where it was written: dimension by dimension, at the same offset. Arrays may be permuted, and the rest of a
member's box runs inside the point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daceml.sdfg.scalar import Index
from daceml.sdfg.scalar_rewrite import free_names
from daceml.sdfg.sizes import Size, product, size
from daceml.transformations.local.members import Member, places

# Operations that it may take to compute a value again where it is read
_MOST_OPERATIONS = 48


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Iterations that all members of a group share.

    Attributes:
        extent: how many.
        params: member -> its parameter that runs along them. A parameter that it adds up over makes it a sum
            over the points of the group.
    """

    extent: Index
    params: Mapping[Member, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Members in an order that keeps their dependences.

    Attributes:
        axes: shared iterations.
        members: every one is after those whose targets it reads.
    """

    members: tuple[Member, ...]
    axes: tuple[Axis, ...]

    @property
    def points(self) -> Size:
        """How many points share nothing."""
        return product(size(axis.extent) for axis in self.axes)

    @property
    def written(self) -> dict[str, Member]:
        """Array or accumulator -> the member that writes it."""
        return {member.target: member for member in self.members}

    @property
    def arrays(self) -> set[str]:
        """Everything read or written."""
        return {a for m in self.members for a in (m.target, *m.reads)}

    @property
    def sums(self) -> tuple[Member, ...]:
        """Members that add up over the points."""
        return tuple(m for m in self.members if self.adds_up_points(m))

    def adds_up_points(self, member: Member) -> bool:
        """Whether what a member adds up goes on from point to point."""
        reduced = set(map(str, member.reduced))
        return any(axis.params[member] in reduced for axis in self.axes)

    def inner_extents(self, member: Member) -> tuple[Index, ...]:
        """The part of a member's box that runs inside a point."""
        shared = {axis.params[member] for axis in self.axes}
        box = [*zip(member.params, member.extents, strict=True)]
        box += zip(member.reduced, member.reduced_extents, strict=True)
        return tuple(e for p, e in box if str(p) not in shared)


def group_of(members: tuple[Member, ...]) -> Group:
    """The group of one scope: its members share the iterations of the last, which is what they are for."""
    groups = [Group(members=(m,), axes=_own_axes(m)) for m in members]
    joined = groups[-1]
    for group in reversed(groups[:-1]):
        joined = join(group, joined)
    return joined


def _own_axes(member: Member) -> tuple[Axis, ...]:
    return tuple(
        Axis(extent=e, params={member: str(p)}) for p, e in zip(member.params, member.extents, strict=True)
    )


def join(first: Group, second: Group) -> Group:
    """One group of both, `first` before `second`; it has no axes where they share no iterations."""
    pairs = _handed_over(first, second)
    if pairs is None:
        pairs = _read_by_both(first, second)
    axes: list[Axis] = []
    used: set[int] = set()
    for a, axis in enumerate(first.axes):
        other = next(
            (
                b
                for x, b in sorted(pairs)
                if x == a and b not in used and str(second.axes[b].extent) == str(axis.extent)
            ),
            None,
        )
        if other is not None:
            used.add(other)
            params = {**axis.params, **second.axes[other].params}
            axes.append(Axis(extent=axis.extent, params=params))
    return Group(members=(*first.members, *second.members), axes=tuple(axes))


def hands_over(first: Group, second: Group) -> bool:
    """Whether one group reads what the other writes."""
    return any(target in member.reads for target in first.written for member in second.members)


def _handed_over(first: Group, second: Group) -> set[tuple[int, int]] | None:
    """Pairs of axes along which `second` reads what `first` writes, each element where it was written; None
    where it reads nothing of it."""
    found: set[tuple[int, int]] | None = None
    for target, writer in first.written.items():
        at = axes_of(first, writer, writer.index)
        for reader in second.members:
            for index in reader.reads.get(target, ()):
                there = axes_of(second, reader, index or ())
                pairs = _same(at, there)
                found = pairs if found is None else found & pairs
    return found


def _read_by_both(first: Group, second: Group) -> set[tuple[int, int]]:
    """Pairs of axes along which both read the same array; any pairing is right, this one reads it once."""
    found: set[tuple[int, int]] = set()
    taken: tuple[set[int], set[int]] = (set(), set())
    for one in first.members:
        for two in second.members:
            for array in one.reads:
                for index, other in zip(one.reads[array], two.reads.get(array, ()), strict=False):
                    if index is None or other is None:
                        continue
                    for a, b in _same(axes_of(first, one, index), axes_of(second, two, other)):
                        if a not in taken[0] and b not in taken[1]:
                            found.add((a, b))
                            taken[0].add(a)
                            taken[1].add(b)
    return found


Along = tuple[int, str]


def axes_of(group: Group, member: Member, index: Iterable[Index]) -> list[Along | None]:
    """For each dimension of an access, the shared axis that alone runs along it, and the offset."""
    by_param = {axis.params[member]: number for number, axis in enumerate(group.axes)}
    found: list[Along | None] = []
    params = (*member.params, *member.reduced) if group.adds_up_points(member) else member.params
    for place in places(tuple(index), params):
        known = place is not None and place[0] in by_param
        found.append((by_param[place[0]], str(place[1])) if known and place is not None else None)
    return found


def _same(one: list[Along | None], other: list[Along | None]) -> set[tuple[int, int]]:
    """Pairs of axes with equal offsets; of an access at positions that depend on data, none."""
    return {
        (a[0], b[0])
        for a, b in zip(one, other, strict=bool(other))
        if a is not None and b is not None and a[1] == b[1]
    }


def local_dimensions(group: Group, writer: Member) -> tuple[int, ...]:
    """Dimensions of a target that belong to one point: those that are not along shared axes."""
    along = axes_of(group, writer, writer.index)
    return tuple(
        d
        for d, (extent, axis) in enumerate(zip(writer.shape, along, strict=True))
        if axis is None and extent != 1
    )


def local_shape(group: Group, writer: Member) -> tuple[Index, ...]:
    """The part of a target that belongs to one point."""
    return tuple(writer.shape[d] for d in local_dimensions(group, writer))


def computed_again(group: Group) -> frozenset[str]:
    """Targets whose values are computed where they are read, since that costs no more than keeping them.

    What such a value takes from others like it counts each time: neighbours of neighbours would double it at
    every step.
    """
    operations: dict[str, int] = {}
    for member in group.members:
        amount = member.operations + sum(
            len(indices) * operations[array] for array, indices in member.reads.items() if array in operations
        )
        if member.operator is None and member.is_cheap and solvable(member) and amount <= _MOST_OPERATIONS:
            operations[member.target] = amount
    return frozenset(operations)


def solvable(member: Member) -> bool:
    """Whether the point that writes an element follows from where the element is."""
    found = places(member.index, member.params)
    params = {str(p) for p in member.params}
    wide = [str(p) for p, e in zip(member.params, member.extents, strict=True) if e != 1]
    names = [place[0] for place in found if place is not None]
    alone = all(
        place is not None or not (free_names(index) & params)
        for place, index in zip(found, member.index, strict=True)
    )
    return alone and len(set(names)) == len(names) == len(wide)

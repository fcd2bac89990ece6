"""What joining two groups saves, or why they stay apart."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import dace

from daceml.config import config
from daceml.sdfg.nest import is_small
from daceml.sdfg.sizes import Size, number_of_all, product, size
from daceml.transformations.local.fusion_groups import (
    Group,
    axes_of,
    computed_again,
    hands_over,
    join,
    local_shape,
)
from daceml.transformations.local.members import places

# One array that a point of a group keeps for itself, and all of them: they are on the stack of a thread
LOCAL_BYTES = 2**15
_STACK_BYTES = 2**17
# What a point may go through more than once: it stays in the last cache
SLICE_BYTES = 2**22
# Points that the shared iterations should have, so that threads of unequal speed end together
_POINTS = 16
MOST_MEMBERS = 24
# Reads included; the time that DaCe takes to write a kernel grows with the square of them
MOST_OPERATIONS = 1024
# Of the largest array that a nest goes through, what has to be saved
_WORTHWHILE = 64
# In which order less than this is read does not matter, nor how often
SMALL_BYTES = 2**12


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Two groups as one.

    Attributes:
        group: of both.
        saved_bytes: what need not be read or written any more.
    """

    group: Group
    saved_bytes: int


class Judge:
    """Says what joining two groups of a network saves, or why they stay apart.

    Args:
        example_size: what a symbolic size counts as.
        most_members: computations in one group.
    """

    def __init__(self, sdfg: dace.SDFG, example_size: int, most_members: int = MOST_MEMBERS) -> None:
        self.sdfg, self.example_size, self.most_members = sdfg, example_size, most_members

    def bytes_of(self, array: str) -> int:
        """Size of an array; symbolic dimensions count as examples."""
        desc = self.sdfg.arrays[array]
        return self.number(product(size(s) for s in desc.shape)) * desc.dtype.bytes

    def number(self, amount: Size) -> int:
        """An amount at the example size."""
        return number_of_all(amount, self.example_size)

    def joined(self, first: Group, second: Group, vanishing: Collection[str]) -> Joined | str:
        """Both as one, or the reason why not.

        Args:
            vanishing: arrays that nobody outside the two reads.
        """
        group = join(first, second)
        if not group.axes:
            return "they share no iterations"
        points = self.number(group.points)
        together = hands_over(first, second)
        if not together and min(map(self._written_most, (first, second))) > SMALL_BYTES:
            return "they share inputs only, and a result of one would be delayed until the other is done"
        alone = max(self.number(first.points), self.number(second.points))
        if points < min(_POINTS, alone) and self._work(group) >= config().parallel_threshold:
            return f"they share {points} iterations only, too few to run in parallel"
        refusal = self.refusal(group)
        if refusal is not None:
            return refusal
        saved = self._saved(first, second, group, vanishing)
        if saved == 0:
            return "nothing is saved"
        if _reorders(first, second, group) and saved * _WORTHWHILE < self._largest(group):
            return f"{saved} bytes are too few to change the order of loops for"
        return Joined(group=group, saved_bytes=saved)

    def refusal(self, group: Group) -> str | None:
        """Why the points of a group are not what one thread should go through; None if they are."""
        if len(group.members) > self.most_members:
            return f"more than {self.most_members} computations in one kernel keep too many values at once"
        if len(group.members) > 1 and sum(m.operations for m in group.members) > MOST_OPERATIONS:
            return f"more than {MOST_OPERATIONS} operations in one kernel take too long to compile"
        across = self._across_memory(group)
        if across is not None:
            return f"an iteration would read {across} with a large stride"
        return self.too_large(group)

    def _largest(self, group: Group) -> int:
        """Bytes of the largest array of the network in a group."""
        return max(self.bytes_of(a) for a in group.arrays if a in self.sdfg.arrays)

    def too_large(self, group: Group) -> str | None:
        """Why what a point hands over does not fit; None if it does."""
        written, again, kept = group.written, computed_again(group), dict[str, int]()
        for reader in group.members:
            for array, indices in reader.reads.items():
                writer = written.get(array)
                if writer is None:
                    continue
                if None in indices:
                    return f"{array} is read at positions that depend on data"
                if array in again:
                    continue
                shape = local_shape(group, writer)
                if not is_small(shape, writer.dtype, LOCAL_BYTES):
                    return f"each iteration would keep [{', '.join(map(str, shape))}] elements of {array}"
                kept[array] = self.number(product(map(size, shape))) * writer.dtype.bytes
        amount = sum(kept.values())
        amount += sum(self.number(product(map(size, m.extents))) * m.dtype.bytes for m in group.sums)
        return f"each iteration would keep {amount} bytes" if amount > _STACK_BYTES else None

    def _written_most(self, group: Group) -> int:
        """Bytes of the largest array of the network that a group writes."""
        return max((self.bytes_of(a) for a in group.written if a in self.sdfg.arrays), default=0)

    def _work(self, group: Group) -> int:
        """Iterations of the longest loop."""
        boxes = [(*m.extents, *m.reduced_extents) for m in group.members]
        return max(self.number(product(map(size, box))) for box in boxes)

    def _across_memory(self, group: Group) -> str | None:
        """A large array whose neighbours in memory belong to different points, each of which reads more of
        it; None if there is none."""
        for member in group.members:
            if not group.inner_extents(member):
                continue
            shared = {axis.params[member] for axis in group.axes}
            params = (*member.params, *member.reduced)
            accesses = [(a, i) for a, indices in member.reads.items() for i in indices if i is not None]
            for array, index in [*accesses, (member.target, member.index)]:
                if array not in self.sdfg.arrays or self.bytes_of(array) < SMALL_BYTES:
                    continue
                desc = self.sdfg.arrays[array]
                runs = [
                    (place[0], stride)
                    for place, stride, extent in zip(
                        places(index, params), desc.strides, desc.shape, strict=True
                    )
                    if place is not None and extent != 1
                ]
                fast = [name for name, stride in runs if stride == 1]
                along = [name for name, _ in runs]
                if any(p in shared for p in fast) and any(p not in shared for p in along):
                    return array
        return None

    def _saved(self, first: Group, second: Group, group: Group, vanishing: Collection[str]) -> int:
        points = max(1, self.number(group.points))
        inside = any(group.inner_extents(m) for m in group.members)
        saved = 0
        for array in first.arrays & second.arrays:
            if array not in self.sdfg.arrays:
                continue
            amount = self.bytes_of(array)
            along = self._along(group, array)
            if inside and amount // max(1, min(points, along)) > SLICE_BYTES:
                continue
            written = array in first.written or array in second.written
            saved += amount * (2 if written and array in vanishing else 1)
        return saved

    def _along(self, group: Group, array: str) -> int:
        """How many points an array is spread over."""
        most = 1
        for member in group.members:
            indices = [i for i in member.reads.get(array, ()) if i is not None]
            if member.target == array:
                indices.append(member.index)
            for index in indices:
                axes = {a[0] for a in axes_of(group, member, index) if a is not None}
                most = max(most, self.number(product(size(group.axes[a].extent) for a in axes)))
        return most


def _reorders(first: Group, second: Group, group: Group) -> bool:
    """Whether a member of two groups has more of its loops inside a point once they are joined."""
    return any(
        len(group.inner_extents(member)) > len(part.inner_extents(member))
        for part in (first, second)
        for member in part.members
    )

"""How far back the memory that steps touch was touched before, in bytes: what decides which cache has it.

A call runs again and again, so what it touches first was touched by the call before. Between two uses of an
array lies what other steps have moved meanwhile, and no more than all memory that the call has.
Source: the distance is that of Mattson et al., Evaluation techniques for storage hierarchies (1970), with
arrays in the place of pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from daceml.codegen.planning.steps import Storage
from daceml.sdfg.sizes import number, size_bytes

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.codegen.planning.steps import Step

DISTANCES = tuple(2**power for power in range(20, 28))
"""Bytes; bytes of a step are counted by the first of these that their distance does not exceed, and those
beyond the last apart."""

Reach = tuple[int, ...]
"""Bytes by distance, one number more than there are `DISTANCES`."""


def reaches(plan: Plan, sizes: Mapping[str, int], elsewhere_bytes: int = 0) -> tuple[Reach, ...]:
    """The bytes of each step of a plan, by distance.

    Args:
        sizes: of symbolic dimensions.
        elsewhere_bytes: that a call touches besides, in another program.
    """
    amount = _amounts(plan, sizes)
    touched = [_touched(step, plan, amount) for step in plan.steps]
    around = footprint_bytes(plan, sizes) + elsewhere_bytes
    workspace = number(plan.layout.size_bytes, sizes)
    moved, last = 0, dict[str, int]()
    found: list[Reach] = []
    for arrays in touched:
        counts = [0] * (len(DISTANCES) + 1)
        for array, count in arrays.items():
            if array in last:
                distance = min(moved - last[array], around)
            else:
                made = plan.locations[array].storage is Storage.WORKSPACE
                distance = min(workspace, around) if made else around
            counts[bisect_left(DISTANCES, distance)] += count
            last[array] = moved
        moved += sum(arrays.values())
        found.append(tuple(counts))
    return tuple(found)


def footprint_bytes(plan: Plan, sizes: Mapping[str, int]) -> int:
    """All memory that a call has: inputs, weights, results, workspace and what is alive at once besides."""
    amount = _amounts(plan, sizes)
    used = {plan.roots[a] for step in plan.steps for a in (*step.reads, *step.writes)}
    stays = (Storage.INPUT, Storage.WEIGHT, Storage.OUTPUT)
    fixed = sum(amount(a) for a in used if a in plan.locations and plan.locations[a].storage in stays)
    alive = most = 0
    for index in range(len(plan.steps)):
        fresh = [a for a in plan.makes.get(index, ()) if plan.locations[a].storage is Storage.FRESH]
        alive += sum(map(amount, fresh))
        most = max(most, alive)
        gone = [a for a in plan.releases.get(index, ()) if plan.locations[a].storage is Storage.FRESH]
        alive -= sum(map(amount, gone))
    return fixed + number(plan.layout.size_bytes, sizes) + most


def past_the_caches(reach: Sequence[int], streamed_bytes: int) -> Reach:
    """What is left of a step's bytes without those that it writes past the caches: the farthest ones."""
    left = list(reach)
    for place in reversed(range(len(left))):
        gone = min(left[place], streamed_bytes)
        left[place] -= gone
        streamed_bytes -= gone
    return tuple(left)


def _touched(step: Step, plan: Plan, amount: Callable[[str], int]) -> dict[str, int]:
    """Array -> bytes of it that a step reads or writes; of views the memory that they are of."""
    found: dict[str, int] = {}
    for name in dict.fromkeys((*step.reads, *step.writes)):
        root = plan.roots[name]
        if root in plan.locations:
            found[root] = min(found.get(root, 0) + amount(name), amount(root))
    return found


def _amounts(plan: Plan, sizes: Mapping[str, int]) -> Callable[[str], int]:
    arrays, known = plan.network.sdfg.arrays, dict[str, int]()

    def amount(name: str) -> int:
        if name not in known:
            known[name] = number(size_bytes(arrays[name]), sizes)
        return known[name]

    return amount

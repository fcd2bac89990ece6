"""Steps as late as memory wants them: what is made long before anybody reads it lies in memory meanwhile.

A backward pass that computes parts of the forward pass again could do so at once, since all that it needs is
stored; then nothing would be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Ordered(Protocol):
    """What a step reads and writes."""

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...


AnyStep = TypeVar("AnyStep", bound=Ordered)


def late_steps(
    steps: Sequence[AnyStep],
    *,
    root: Callable[[str], str],
    temporary_bytes: Callable[[str], int],
    fixed: Callable[[AnyStep], bool],
    draws: Callable[[AnyStep], bool],
) -> list[AnyStep]:
    """The same steps, each moved to right before its first reader where no more is alive that way.

    Args:
        steps: in an order that runs.
        root: array -> the array whose memory it is.
        temporary_bytes: what an array costs while it is alive; 0 for what lives throughout.
        fixed: steps that stay where they are.
        draws: steps that stay in order among each other, as they draw random numbers.
    """
    order = list(steps)
    for step in reversed(steps):
        at = next(i for i, other in enumerate(order) if other is step)
        written, read = {root(a) for a in step.writes}, {root(a) for a in step.reads}
        made = sum(map(temporary_bytes, written))
        if fixed(step) or made == 0:
            continue
        until = next(
            (
                i
                for i in range(at + 1, len(order))
                if meets(order[i], written, read, root) or (draws(step) and draws(order[i]))
            ),
            None,
        )
        if until is None or until == at + 1:
            continue
        later = {root(a) for other in order[until:] for a in (*other.reads, *other.writes)}
        # what it is the last to read lives longer by this move
        if sum(temporary_bytes(a) for a in read - later) <= made:
            order.insert(until - 1, order.pop(at))
    return order


def meets(other: Ordered, written: set[str], read: set[str], root: Callable[[str], str]) -> bool:
    """Whether a step reads or writes what another one writes, or writes what it reads."""
    theirs = {root(a) for a in other.writes}
    return not written.isdisjoint({*theirs, *map(root, other.reads)}) or not read.isdisjoint(theirs)

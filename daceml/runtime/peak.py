"""What runs while most memory is in use moves forward, if less is in use at any time that way.

A gradient that nobody reads is made at the end of a program as well as in its middle; what it is made of can
be freed earlier the earlier that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic

from daceml.runtime.late_steps import AnyStep, meets

_MOST_MOVES = 4
_MOST_STEPS = 2000


def lower_peak(
    steps: Sequence[AnyStep],
    *,
    root: Callable[[str], str],
    made_bytes: Callable[[str], int],
    freed_bytes: Callable[[str], int],
    fixed: Callable[[AnyStep], bool],
) -> list[AnyStep]:
    """The same steps in an order in which less memory is in use when most is.

    The step of the peak moves, with those in front of it that make something for it alone, as what runs again
    in a backward pass does; each time to where the peak is lowest.

    Args: as those of `daceml.runtime.exchange.exchange_steps`.
    """
    search = _Search(steps, root, made_bytes, freed_bytes, fixed)
    order = list(steps)
    for _ in range(_MOST_MOVES if len(order) <= _MOST_STEPS else 0):
        better = search.moved(order)
        if better is None:
            break
        order = better
    return order


class _Search(Generic[AnyStep]):
    def __init__(
        self,
        steps: Sequence[AnyStep],
        root: Callable[[str], str],
        made_bytes: Callable[[str], int],
        freed_bytes: Callable[[str], int],
        fixed: Callable[[AnyStep], bool],
    ) -> None:
        self.root, self.fixed = root, fixed
        self.made_bytes, self.freed_bytes = made_bytes, freed_bytes
        self.writes = {id(s): {root(a) for a in s.writes} for s in steps}
        self.touched = {id(s): self.writes[id(s)] | {root(a) for a in s.reads} for s in steps}
        self.times = Counter(a for arrays in self.touched.values() for a in arrays)

    def moved(self, order: Sequence[AnyStep]) -> list[AnyStep] | None:
        """The order with the step of its peak further in front; None where that lowers nothing."""
        peak, end = self._peak(order)
        begin = self._begin(order, end)
        block, best = order[begin : end + 1], None
        for place in range(begin - 1, -1, -1):
            if not all(self._passes(order[place], step) for step in block):
                break
            other = [*order[:place], *block, *order[place:begin], *order[end + 1 :]]
            amount, _ = self._peak(other)
            if amount < peak:
                peak, best = amount, other
        return best

    def _begin(self, order: Sequence[AnyStep], end: int) -> int:
        """Where the steps begin that make something for one step alone."""
        begin = end
        while begin:
            made = self.writes[id(order[begin - 1])]
            ahead = self.touched[id(order[begin])]
            if not made or any(self.times[a] != 2 or a not in ahead for a in made):
                break
            begin -= 1
        return begin

    def _peak(self, order: Sequence[AnyStep]) -> tuple[int, int]:
        """The most bytes in use beyond those at the start, and the step that they are in use during."""
        seen: Counter[str] = Counter()
        now, most = 0, (0, 0)
        for place, step in enumerate(order):
            now += sum(self.made_bytes(a) for a in self.writes[id(step)] if not seen[a])
            most = max(most, (now, place))
            seen.update(self.touched[id(step)])
            now -= sum(self.freed_bytes(a) for a in self.touched[id(step)] if seen[a] == self.times[a])
        return most

    def _passes(self, first: AnyStep, second: AnyStep) -> bool:
        """Whether two neighbours may change places."""
        if self.fixed(first) and self.fixed(second):
            return False
        written = self.writes[id(first)]
        return not meets(second, written, self.touched[id(first)] - written, self.root)

"""What runs while most memory is in use moves forward, if less is in use at any time that way.

A gradient that nobody reads is made at the end of a program as well as in its middle; what it is made of can
be freed earlier the earlier that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from daceml.codegen.planning.late_steps import AnyStep
from daceml.codegen.planning.memory_usage import Usage

_MOST_MOVES = 4
_MOST_STEPS = 2000


def lower_peak(order: Sequence[AnyStep], usage: Usage[AnyStep]) -> list[AnyStep]:
    """The same steps in an order in which less memory is in use when most is.

    The step of the peak moves, with those in front of it that make something for it alone, as what runs again
    in a backward pass does; each time to where the peak is lowest.

    Args:
        order: of the steps of `usage`, one that runs.
    """
    found = list(order)
    for _ in range(_MOST_MOVES if len(found) <= _MOST_STEPS else 0):
        better = _moved(found, usage)
        if better is None:
            break
        found = better
    return found


def _moved(order: Sequence[AnyStep], usage: Usage[AnyStep]) -> list[AnyStep] | None:
    """The order with the step of its peak further in front; None where that lowers nothing."""
    peak, end = _peak(order, usage)
    begin = _begin(order, end, usage)
    block, best = order[begin : end + 1], None
    for place in range(begin - 1, -1, -1):
        if not all(usage.exchangeable(order[place], step) for step in block):
            break
        other = [*order[:place], *block, *order[place:begin], *order[end + 1 :]]
        amount, _ = _peak(other, usage)
        if amount < peak:
            peak, best = amount, other
    return best


def _begin(order: Sequence[AnyStep], end: int, usage: Usage[AnyStep]) -> int:
    """Where the steps begin that make something for one step alone."""
    begin = end
    while begin:
        made, reader = usage.writes(order[begin - 1]), usage.touches(order[begin])
        if not made or any(usage.times[a] != 2 or a not in reader for a in made):
            break
        begin -= 1
    return begin


def _peak(order: Sequence[AnyStep], usage: Usage[AnyStep]) -> tuple[int, int]:
    """The most bytes in use beyond those at the start, and the place of the step that uses them."""
    seen: Counter[str] = Counter()
    now, most = 0, (0, 0)
    for place, step in enumerate(order):
        now += sum(usage.made_bytes(a) for a in usage.writes(step) if not seen[a])
        most = max(most, (now, place))
        seen.update(usage.touches(step))
        now -= sum(usage.freed_bytes(a) for a in usage.touches(step) if seen[a] == usage.times[a])
    return most

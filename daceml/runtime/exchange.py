"""Neighbours in the order of steps change places where less memory is in use that way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from daceml.runtime.late_steps import AnyStep, meets

_MOST_EXCHANGES_A_STEP = 200


def exchange_steps(
    steps: Sequence[AnyStep],
    *,
    root: Callable[[str], str],
    made_bytes: Callable[[str], int],
    freed_bytes: Callable[[str], int],
    fixed: Callable[[AnyStep], bool],
) -> list[AnyStep]:
    """The same steps in an order in which no more memory is in use at any time, and less at some.

    Two neighbours are exchanged where the larger of the amounts in use during either gets smaller, or stays
    the same and the other gets smaller. Every exchange improves the sorted amounts of all steps, so it ends.

    Args:
        steps: in an order that runs.
        root: array -> the array whose memory it is.
        made_bytes: what the first write of an array takes.
        freed_bytes: what its last read gives back.
        fixed: steps that stay in order among each other, such as draws of random numbers.
    """
    order = list(steps)
    writes = {id(s): {root(a) for a in s.writes} for s in order}
    touched = {id(s): writes[id(s)] | {root(a) for a in s.reads} for s in order}
    times = Counter(a for arrays in touched.values() for a in arrays)
    seen: Counter[str] = Counter()  # how many steps before the pair touch an array

    def in_use(first: AnyStep, second: AnyStep) -> tuple[int, int]:
        """Bytes that are in use during either of two neighbours: the larger amount, and their sum."""
        amounts: list[int] = []
        now = 0
        for step, before in ((first, set[str]()), (second, touched[id(first)])):
            now += sum(made_bytes(a) for a in writes[id(step)] if not seen[a] and a not in before)
            amounts.append(now)
            last = (a for a in touched[id(step)] if seen[a] + (a in before) + 1 == times[a])
            now -= sum(map(freed_bytes, last))
        return max(amounts), sum(amounts)

    def exchangeable(first: AnyStep, second: AnyStep) -> bool:
        read = touched[id(first)] - writes[id(first)]
        return not (fixed(first) and fixed(second)) and not meets(second, writes[id(first)], read, root)

    left = _MOST_EXCHANGES_A_STEP * len(order)
    at = 0
    while at < len(order) - 1:
        first, second = order[at], order[at + 1]
        if left and exchangeable(first, second) and in_use(second, first) < in_use(first, second):
            order[at], order[at + 1] = second, first
            left -= 1
            if at:
                at -= 1
                seen.subtract(touched[id(order[at])])
        else:
            seen.update(touched[id(first)])
            at += 1
    return order

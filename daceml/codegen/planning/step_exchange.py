"""Neighbours in the order of steps change places where less memory is in use that way."""

from __future__ import annotations

from collections import Counter

from daceml.codegen.planning.late_steps import AnyStep
from daceml.codegen.planning.memory_usage import Usage

_MOST_EXCHANGES_A_STEP = 200


def exchange_steps(usage: Usage[AnyStep]) -> list[AnyStep]:
    """The same steps in an order in which no more memory is in use at any time, and less at some.

    Two neighbours are exchanged where the larger of the amounts in use during either gets smaller, or stays
    the same and the other gets smaller. Every exchange improves the sorted amounts of all steps, so it ends.
    """
    order = list(usage.steps)
    seen: Counter[str] = Counter()  # how many steps before the pair touch an array

    def in_use(first: AnyStep, second: AnyStep) -> tuple[int, int]:
        """Bytes that are in use during either of two neighbours: the larger amount, and their sum."""
        amounts: list[int] = []
        now = 0
        for step, before in ((first, set[str]()), (second, usage.touches(first))):
            now += sum(usage.made_bytes(a) for a in usage.writes(step) if not seen[a] and a not in before)
            amounts.append(now)
            last = (a for a in usage.touches(step) if seen[a] + (a in before) + 1 == usage.times[a])
            now -= sum(map(usage.freed_bytes, last))
        return max(amounts), sum(amounts)

    left = _MOST_EXCHANGES_A_STEP * len(order)
    at = 0
    while at < len(order) - 1:
        first, second = order[at], order[at + 1]
        if left and usage.exchangeable(first, second) and in_use(second, first) < in_use(first, second):
            order[at], order[at + 1] = second, first
            left -= 1
            if at:
                at -= 1
                seen.subtract(usage.touches(order[at]))
        else:
            seen.update(usage.touches(first))
            at += 1
    return order

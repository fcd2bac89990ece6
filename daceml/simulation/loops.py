"""The loops over tasks and edges, written once: for lists in Python, and for arrays as numba compiles them.

They add and compare in the same order either way, so both give the same bits. They take columns of `Tasks`,
`Edges` and `Structure` by their names there, and write into what the caller allocated.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

Ints = Sequence[int]
Floats = Sequence[float]

BLOCK = 64  # places of an order that are passed over together


def group(of: Ints, place: MutableSequence[int], rows: MutableSequence[int]) -> None:
    """Sort `rows` by their numbers in `of`; `place` says where the rows of each number begin."""
    for row in range(len(of)):
        rows[place[of[row]]] = row
        place[of[row]] += 1


def topological_order(
    before: Ints, after: Ints, in_start: Ints, out_start: Ints, out_target: Ints,
    waits: MutableSequence[int], order: MutableSequence[int],
) -> int:  # fmt: skip
    """Fill `order` with tasks such that each stands behind all that it waits for; returns how many can be.

    Fewer than all are ordered where some wait for each other: those keep a count above zero in `waits`.
    """
    filled = 0
    for task in range(len(before)):
        count = in_start[task + 1] - in_start[task]
        if before[task] >= 0:
            count += 1
        waits[task] = count
        if count == 0:
            order[filled] = task
            filled += 1
    done = 0
    while done < filled:  # `order` is the queue as well
        task = order[done]
        done += 1
        follower = after[task]
        if follower >= 0:
            waits[follower] -= 1
            if waits[follower] == 0:
                order[filled] = follower
                filled += 1
        for place in range(out_start[task], out_start[task + 1]):
            target = out_target[place]
            waits[target] -= 1
            if waits[target] == 0:
                order[filled] = target
                filled += 1
    return filled


def sweep(
    order: Ints, before: Ints, in_start: Ints, in_edge: Ints, in_source: Ints,
    duration_us: Floats, gap_us: Floats, lag_us: Floats, from_start: Sequence[bool],
    start_us: MutableSequence[float], end_us: MutableSequence[float],
) -> None:  # fmt: skip
    """Times of all tasks."""
    for position in range(len(order)):
        task = order[position]
        start = 0.0
        earliest = gap_us[task]
        if before[task] >= 0:
            earliest += end_us[before[task]]
        if earliest > start:
            start = earliest
        for place in range(in_start[task], in_start[task + 1]):
            edge = in_edge[place]
            source = in_source[place]
            earliest = (start_us[source] if from_start[edge] else end_us[source]) + lag_us[edge]
            if earliest > start:
                start = earliest
        start_us[task] = start
        end_us[task] = start + duration_us[task]


def spread(
    order: Ints, position_of: Ints, before: Ints, after: Ints,
    in_start: Ints, in_edge: Ints, in_source: Ints,
    out_start: Ints, out_edge: Ints, out_target: Ints,
    duration_us: Floats, gap_us: Floats, lag_us: Floats, from_start: Sequence[bool],
    marked: MutableSequence[int], block_marked: MutableSequence[int],
    start_us: MutableSequence[float], end_us: MutableSequence[float],
) -> None:  # fmt: skip
    """Times of the tasks at the `marked` places of the order, and of whichever follow from them.

    A task follows if what changed bound it, or does now; what differs otherwise must be marked beforehand.
    Blocks of BLOCK places in which none is marked are passed over as one. Marks are only ever set further on.
    """
    for block in range(len(block_marked)):
        if block_marked[block] == 0:
            continue
        for position in range(block * BLOCK, min(block * BLOCK + BLOCK, len(order))):
            if marked[position] == 0:
                continue
            task = order[position]
            start = 0.0
            earliest = gap_us[task]
            if before[task] >= 0:
                earliest += end_us[before[task]]
            if earliest > start:
                start = earliest
            for place in range(in_start[task], in_start[task + 1]):
                edge = in_edge[place]
                source = in_source[place]
                earliest = (start_us[source] if from_start[edge] else end_us[source]) + lag_us[edge]
                if earliest > start:
                    start = earliest
            end = start + duration_us[task]
            old_start, old_end = start_us[task], end_us[task]
            if start == old_start and end == old_end:
                continue
            start_us[task] = start
            end_us[task] = end
            follower = after[task]
            if follower >= 0:
                bound = start_us[follower]
                if end + gap_us[follower] > bound or old_end + gap_us[follower] == bound:
                    marked[position_of[follower]] = 1
                    block_marked[position_of[follower] // BLOCK] = 1
            for place in range(out_start[task], out_start[task + 1]):
                follower = out_target[place]
                edge = out_edge[place]
                bound = start_us[follower]
                since, old_since = (start, old_start) if from_start[edge] else (end, old_end)
                if since + lag_us[edge] > bound or old_since + lag_us[edge] == bound:
                    marked[position_of[follower]] = 1
                    block_marked[position_of[follower] // BLOCK] = 1


def slack(
    order: Ints, before: Ints, has_gap: Sequence[bool], in_start: Ints, in_edge: Ints, in_source: Ints,
    gap_us: Floats, lag_us: Floats, from_start: Sequence[bool], start_us: Floats, end_us: Floats,
    slack_us: MutableSequence[float],
) -> None:  # fmt: skip
    """How much later each task may start; `slack_us` holds how long before the last end each one ends.

    It is at most that of each task which waits for it, and the room between the two: zero where it binds.
    """
    for position in range(len(order) - 1, -1, -1):
        task = order[position]
        start = start_us[task]
        own = slack_us[task]
        source = before[task]
        if source >= 0:
            earliest = end_us[source] + (gap_us[task] if has_gap[task] else 0.0)
            slack_us[source] = min(slack_us[source], own + (start - earliest))
        for place in range(in_start[task], in_start[task + 1]):
            edge = in_edge[place]
            source = in_source[place]
            earliest = (start_us[source] if from_start[edge] else end_us[source]) + lag_us[edge]
            slack_us[source] = min(slack_us[source], own + (start - earliest))

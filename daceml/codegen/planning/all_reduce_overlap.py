"""Where all-reduces stand among a program's steps: each begins as early as it can, and ends at the end.

Steps are ordered for memory first, and then those that make gradients go ahead. An all-reduce begins right
behind the step that completes its bucket, or behind that of the bucket before: all ranks begin them in
the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from daceml.codegen.planning.late_steps import meets
from daceml.codegen.planning.steps import Step
from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce
from daceml.sdfg.external import AtenCall


def apart(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Steps that compute, and halves of all-reduces."""
    exchanging = [s for s in steps if isinstance(s.action, BeginAllReduce | WaitAllReduce)]
    return [s for s in steps if s not in exchanging] if exchanging else list(steps), exchanging


def early_steps(
    steps: Sequence[Step], sent: Collection[str], kept: Collection[str], *, root: Callable[[str], str]
) -> list[Step]:
    """The same steps; those that compute nothing but what is sent come as soon as they can. Pure.

    In an order for memory a gradient is computed when something has to go, and that is mostly at the end.

    Args:
        sent, kept: arrays, by the memory that they have; others are of no use once their readers are done.
    """
    serving = _serving(steps, sent, kept, root)
    order: list[Step] = []
    waiting: list[
        Step
    ] = []  # what only gradients need, such as parts of the forward pass: right before these
    for place, step in enumerate(steps):
        if place not in serving:
            order.append(step)
        elif set(sent).isdisjoint(map(root, step.writes)):
            waiting.append(step)
        else:
            group = _with_producers(step, waiting, root)
            waiting = [other for other in waiting if not any(other is member for member in group)]
            at = _earliest(order, group, root)
            order[at:at] = group
    return [*order, *waiting]


def _serving(
    steps: Sequence[Step], sent: Collection[str], kept: Collection[str], root: Callable[[str], str]
) -> set[int]:
    """Places of the steps that compute what is sent, and what nobody else needs."""
    touched: dict[str, list[int]] = {}
    last_written: dict[str, int] = {}
    for place, step in enumerate(steps):
        last_written |= dict.fromkeys(map(root, step.writes), place)
        for array in {*map(root, step.reads), *map(root, step.writes)}:
            touched.setdefault(array, []).append(place)
    found: set[int] = set()
    for place in reversed(range(len(steps))):
        step = steps[place]
        written = set(map(root, step.writes))
        draws = isinstance(step.action, AtenCall) and step.action.draws
        if draws or not written or any(last_written.get(root(a), -1) > place for a in step.reads):
            continue
        users = {user for array in written for user in touched[array] if user > place}
        if written <= set(sent) or (users and users <= found and written.isdisjoint(kept)):
            found.add(place)
    return found


def _with_producers(step: Step, waiting: Sequence[Step], root: Callable[[str], str]) -> list[Step]:
    """A step, and before it those that it waits for."""
    group, needed = [step], set(map(root, step.reads))
    for other in reversed(waiting):
        if not needed.isdisjoint(map(root, other.writes)):
            group.insert(0, other)
            needed |= set(map(root, other.reads))
    return group


def _earliest(order: Sequence[Step], group: Sequence[Step], root: Callable[[str], str]) -> int:
    written = {root(array) for step in group for array in step.writes}
    read = {root(array) for step in group for array in step.reads}
    at = len(order)
    while at and not meets(order[at - 1], written, read, root):
        at -= 1
    return at


def overlapping(
    computing: Sequence[Step], exchanging: Sequence[Step], *, root: Callable[[str], str]
) -> list[Step]:
    """All steps in one order; pure.

    Args:
        computing: in an order that runs; none of them reads what was averaged.
        exchanging: both halves of each all-reduce.
        root: array -> the array whose memory it is.
    """
    if not exchanging:
        return list(computing)
    complete: dict[str, int] = {}
    for place, step in enumerate(computing):
        complete |= dict.fromkeys(map(root, step.writes), place)
    begins: dict[int, list[Step]] = {}
    earliest = -1  # before every step: what it reads is given
    for step in sorted(filter(_begins, exchanging), key=_bucket):
        earliest = max([earliest, *(complete.get(root(array), -1) for array in step.reads)])
        begins.setdefault(earliest, []).append(step)
    ordered = [*begins.get(-1, ())]
    for place, step in enumerate(computing):
        ordered += [step, *begins.get(place, ())]
    return [*ordered, *sorted((s for s in exchanging if not _begins(s)), key=_bucket)]


def _begins(step: Step) -> bool:
    return isinstance(step.action, BeginAllReduce)


def _bucket(step: Step) -> int:
    assert isinstance(step.action, BeginAllReduce | WaitAllReduce)
    return step.action.bucket

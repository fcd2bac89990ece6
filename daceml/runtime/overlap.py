"""Where all-reduces stand among a program's steps: each begins as early as it can, and ends at the end.

Other steps are ordered for memory first. What an all-reduce reads is complete at some step of that order; it
begins right behind, or behind the one of the bucket before it: all ranks must begin them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daceml.runtime.steps import Step
from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce


def apart(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Steps that compute, and halves of all-reduces."""
    exchanging = [s for s in steps if isinstance(s.action, BeginAllReduce | WaitAllReduce)]
    return [s for s in steps if s not in exchanging] if exchanging else list(steps), exchanging


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

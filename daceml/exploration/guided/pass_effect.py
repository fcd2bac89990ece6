"""What a pass would bring, or has brought, and what its records say of places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daceml.sdfg.passes import PassRecord


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a pass would bring that is not applied everywhere, or has brought: the program with it beside that
    without it.

    Attributes:
        time_us, moved_bytes, memory_bytes, steps: with it, less those without it.
        places: where it would apply, or has applied; empty for passes that are not told their places.
        refused: what it refuses: array or operator, reason, bytes, where.
        why: why it cannot be applied, or left out; empty where it can.
        changes: whether the program is another one with it.
    """

    time_us: float = 0.0
    moved_bytes: int = 0
    memory_bytes: int = 0
    steps: int = 0
    places: tuple[str, ...] = ()
    refused: tuple[tuple[str, str, int, str], ...] = ()
    why: str = ""
    changes: bool = False


def places_of(records: Sequence[PassRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place for record in records for place in record.places))


def refusals_of(records: Sequence[PassRecord]) -> tuple[tuple[str, str, int, str], ...]:
    return tuple(
        (one.subject, one.reason, one.size_bytes if isinstance(one.size_bytes, int) else 0, one.where)
        for record in records
        for one in record.refused
    )

"""What a file says of the run beside its events: devices, ranks, the zero of its clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daceml.profiling.kineto.numerals import is_number

DEVICES, DISTRIBUTED, BASE = "deviceProperties", "distributedInfo", "baseTimeNanoseconds"
_MOST_RANKS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Header:
    """What `Trace` keeps of it, with units and types.

    Attributes:
        base_us: what to add to the times of the file for those of the machine's clock.
        rest: everything but the devices.
        notes: what was not understood, and ignored.
    """

    devices: Sequence[Mapping[str, Any]]
    rank: int | None
    world_size: int | None
    base_us: float
    rest: Mapping[str, Any]
    notes: tuple[str, ...]


def header_of(said: Mapping[str, Any]) -> Header:
    """Take it apart; what is of another type than profilers write is ignored with a note."""
    notes: list[str] = []
    rest = {key: value for key, value in said.items() if key != DEVICES}
    devices = said.get(DEVICES, [])
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):  # pyright: ignore[reportUnknownVariableType]
        notes.append(f"{DEVICES!r} of the file is not a list of objects, and was ignored")
        devices = []
    base = said.get(BASE, 0)
    if not is_number(base):
        notes.append(f"{BASE!r} of the file is not a number, and was ignored")
        base = 0
    distributed = said.get(DISTRIBUTED, {})
    if not isinstance(distributed, dict):
        notes.append(f"{DISTRIBUTED!r} of the file is no object, and was ignored")
        distributed = {}
    rank = _count(distributed, "rank", 0, notes)  # pyright: ignore[reportUnknownArgumentType]
    world_size = _count(distributed, "world_size", 1, notes)  # pyright: ignore[reportUnknownArgumentType]
    if rank is not None and world_size is not None and rank >= world_size:
        notes.append(f"the file says that it is rank {rank} of {world_size}: the number of ranks was ignored")
        world_size = None
    return Header(
        devices=tuple(devices),  # pyright: ignore[reportUnknownArgumentType]
        rank=rank,
        world_size=world_size,
        base_us=base / 1000.0,
        rest=rest,
        notes=tuple(notes),
    )


def _count(said: Mapping[str, Any], key: str, least: int, notes: list[str]) -> int | None:
    value = said.get(key)
    if value is None or (type(value) is int and least <= value < _MOST_RANKS):
        return value
    notes.append(f"{key!r} of {DISTRIBUTED!r} is {value!r:.30}, and was ignored")
    return None

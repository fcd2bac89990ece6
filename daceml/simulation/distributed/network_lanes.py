"""Which lane of the network carries each communication of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.distributed.matching import Match
from daceml.simulation.distributed.waits import Waits
from daceml.simulation.task import Lane


@dataclass(frozen=True, kw_only=True, eq=False)
class Carried:
    """Lanes of the network.

    Attributes:
        lane: [m] number of the lane that carries each communication, from the first of these on.
    """

    lanes: tuple[Lane, ...]
    lane: NDArray[np.int64]


def carried_by(matches: Sequence[Match], waits: Waits, links: Mapping[str, str], *, first: int) -> Carried:
    """One lane for each link that groups share, and as many for another group as it was seen to use at once.

    A link carries what is ready first; lanes of a group keep the recorded order, which costs less to replay.

    Args:
        links: name of a group -> name of a link.
        first: number of the first lane.
    """
    number: dict[str, int] = {}
    lanes: list[Lane] = []
    busy_until: dict[tuple[str, tuple[int, ...]], list[float]] = {}  # of each lane of a group
    lane = np.zeros(len(matches), np.int64)
    for k in np.argsort(waits.begin_us, kind="stable").tolist():
        group, begin_us = matches[k].group, float(waits.begin_us[k])
        shared = group.name in links
        name = f"link {links[group.name]}" if shared else ""
        if not shared:
            ends = busy_until.setdefault((group.name, group.ranks), [])
            slot = next((slot for slot, end_us in enumerate(ends) if end_us <= begin_us), len(ends))
            ends[slot : slot + 1] = [begin_us + float(waits.pure_us[k])]
            name = f"network {group.name} of {_brief(group.ranks)} lane {slot}"
        if name not in number:
            number[name] = first + len(lanes)
            lanes.append(Lane(kind="channel", name=name, ordered=not shared))
        lane[k] = number[name]
    return Carried(lanes=tuple(lanes), lane=lane)


def _brief(ranks: Sequence[int]) -> str:
    """Ranks of a group as text: 0-7, or one by one where some are left out."""
    if len(ranks) > 1 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))

"""What each stream had been given at a moment: what a wait that begins then waits for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from daceml.simulation.building.draft import Draft
from daceml.simulation.graph import NOTHING


class Streams:
    """What each stream had been given when."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.work: dict[int, list[int]] = {}
        self.given_us: dict[int, list[float]] = {}
        launched: dict[int, list[tuple[float, int]]] = {}
        for number in draft.device_rows():
            row = draft.rows[number]
            given_us = draft.rows[row.launched_by].begin_us if row.launched_by != NOTHING else -np.inf
            if row.launched_by == NOTHING and row.position >= draft.linked_from(row.lane):
                given_us = row.start_us
            launched.setdefault(row.lane, []).append((given_us, number))
        for lane, pairs in launched.items():
            pairs.sort(key=lambda pair: (pair[0], draft.rows[pair[1]].position))
            self.given_us[lane] = [given_us for given_us, _ in pairs]
            self.work[lane] = [number for _, number in pairs]

    def last_given(self, lane: int, before_us: float) -> int:
        """The last work that a stream had been given before a moment, NOTHING if none."""
        place = bisect_left(self.given_us.get(lane, []), before_us) - 1
        return self.work[lane][place] if place >= 0 else NOTHING

    def next_given(self, lane: int, after_us: float) -> int:
        """The first work that a stream was given after a moment, NOTHING if none."""
        place = bisect_right(self.given_us.get(lane, []), after_us)
        return self.work[lane][place] if place < len(self.work.get(lane, [])) else NOTHING

    def lane_of(self, device: object, stream: object) -> int:
        """The lane of a stream that an event names; NOTHING where no work ran there."""
        for lane in self.work:
            known = self.draft.lanes[lane]
            if known.name == f"gpu {device} stream {stream}":
                return lane
        return NOTHING

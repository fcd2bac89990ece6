"""First estimates of clocks, in closed form, and which communications are worth looking at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import AlignmentError
from daceml.simulation.distributed.clocks.timings import Floats, Timings

Hosts = NDArray[np.int64]
_PAIRS = 400  # points of which all slopes between two are formed


@dataclass(frozen=True, kw_only=True, eq=False)
class Clocks:
    """Of h hosts, relative to the first one.

    Attributes:
        offset_us: [h] to add to a clock that shows 0.
        drift_ppm: [h] to add for every second that it shows.
    """

    offset_us: Floats
    drift_ppm: Floats

    def offsets(self, timings: Timings, host: Hosts) -> Floats:
        """[m, n] what to add to the ends."""
        return self.offset_us[host] + self.drift_ppm[host] * timings.end_us * 1e-6


def ending_together(timings: Timings, host: Hosts) -> NDArray[np.bool_]:
    """[m] communications whose ends relate clocks: the joint ones, if these suffice, else all."""
    return timings.joint if reached(timings, host, timings.joint).all() else np.ones(len(timings), np.bool_)


def sampled(timings: Timings, host: Hosts, observations: int) -> NDArray[np.bool_]:
    """[m] which to look at: those whose ends relate clocks, evenly over time within each set of members."""
    relates = ending_together(timings, host)
    across = np.array(
        [len(np.unique(host[row])) > 1 for row in timings.members], np.bool_
    )  # ends that one clock shows say nothing of others
    worth = relates & across
    total = int(timings.members[worth].sum())
    if total <= observations:
        return worth
    taken = np.zeros(len(timings), np.bool_)
    _, of_set = np.unique(timings.members, axis=0, return_inverse=True)
    for number in np.unique(of_set[worth]):
        rows = np.flatnonzero(worth & (of_set.ravel() == number))
        keep = max(int(len(rows) * observations / total), min(len(rows), 8))
        taken[rows[np.linspace(0, len(rows) - 1, keep).astype(np.int64)]] = True
    return taken


def estimated(timings: Timings, host: Hosts, *, drift: bool) -> Clocks:
    """Hosts one after the other, each by the median difference of its ends from those of hosts before.

    Raises:
        AlignmentError: a host communicated with none that leads to the first one.
    """
    count = int(host.max()) + 1
    offset_us, drift_ppm = np.zeros(count), np.zeros(count)
    ends = np.stack([_host_ends(timings, host == number) for number in range(count)], axis=1)
    done = {0}
    while len(done) < count:
        known, new = _best_pair(ends, done)
        if new < 0:
            rank = int(np.flatnonzero(~np.isin(host, list(done)))[0])
            raise AlignmentError(
                f"nothing relates the clock of the rank in column {rank} to the first one",
                why="they have no collective in common, not even through other ranks",
                fix="trace a step in which all ranks communicate, or name the hosts of ranks",
            )
        reference = ends[:, known] * (1 + drift_ppm[known] * 1e-6) + offset_us[known]
        both = np.isfinite(reference) & np.isfinite(ends[:, new])
        difference, at_us = (reference - ends[:, new])[both], ends[both, new]
        slope = _slope(at_us, difference) if drift else 0.0
        drift_ppm[new] = slope * 1e6
        offset_us[new] = float(np.median(difference - slope * at_us))
        done.add(new)
    return Clocks(offset_us=offset_us, drift_ppm=drift_ppm)


def _host_ends(timings: Timings, mine: NDArray[np.bool_]) -> Floats:
    """[m] the mean end that the ranks of a host saw; NaN where none took part."""
    ends = timings.end_us[:, mine]
    known = np.isfinite(ends)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, ends, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _best_pair(ends: Floats, done: set[int]) -> tuple[int, int]:
    """A host that is done and one that is not, with the most communications in common; -1, -1 if none has."""
    best, most = (-1, -1), 0
    known = np.isfinite(ends)
    for new in range(ends.shape[1]):
        if new in done:
            continue
        for old in sorted(done):
            common = int((known[:, old] & known[:, new]).sum())
            if common > most:
                best, most = (old, new), common
    return best


def reached(timings: Timings, host: Hosts, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[h] the hosts that some chain of these communications joins with the first one."""
    count = int(host.max(initial=0)) + 1
    takes_part = np.zeros((int(rows.sum()), count), np.bool_)
    for number in range(count):
        takes_part[:, number] = timings.members[rows][:, host == number].any(axis=1)
    reached = np.zeros(count, np.bool_)
    reached[0] = True
    while True:
        touched = takes_part[takes_part[:, reached].any(axis=1)].any(axis=0) | reached
        if (touched == reached).all():
            return reached
        reached = touched


def _slope(at: Floats, value: Floats) -> float:
    """Theil and Sen's: the median of the slopes between any two points, which a quarter may corrupt."""
    rows = np.linspace(0, len(at) - 1, min(len(at), _PAIRS)).astype(np.int64)
    at, value = at[rows], value[rows]
    first, second = np.triu_indices(len(at), 1)
    apart = at[second] - at[first]
    known = np.abs(apart) > 0
    return float(np.median((value[second] - value[first])[known] / apart[known])) if known.any() else 0.0

"""Clocks from the time that a message takes in both directions, where ends of one collective scatter.

Threads of a CPU end a collective at different times. But whoever ends has heard of the last one to begin:
between that start and the end of another rank passes the way between them. If the quickest ways there and
back take equally long, the truth lies where they do. Some algorithms let one rank always end later (an
all-reduce of few elements over Gloo by 25 us), so each kind and size gives an answer of its own, and their
median outvotes those.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from daceml.simulation.distributed.clocks.clock_estimates import Clocks, Hosts, reached
from daceml.simulation.distributed.clocks.clock_program import solved
from daceml.simulation.distributed.clocks.timings import Floats, Timings

_EACH = 150  # collectives of a family in each part of the run, in about half of which either rank is last
_FEWEST = 10  # ways in one direction, of which the quickest says something
_FEW_PARTS, _MOST_PARTS = 4, 32
_QUICK = 0.02  # the share of ways that are quicker than the one that counts, as timestamps may be wrong
_MUCH = 10.0  # times the scatter of ends; a longer way says less than the ends


def by_latencies(
    timings: Timings, host: Hosts, start: Clocks, *, drift: bool, scatter_us: float
) -> Clocks | None:
    """Clocks such that quick ways take equally long in both directions, throughout the run.

    Args:
        timings: without outliers.
        start: clocks by ends.
        scatter_us: the usual distance of an end from those of its collective.
    Returns:
        None where some hosts do not wait for each other in both directions, or ways are too long to say more
        than ends do.
    Source: after Duda et al., Estimating global time in distributed systems (ICDCS '87), where a convex hull
        stands for what is here a quantile of each part of the run.
    """
    joint = timings.taken(timings.joint)
    families = max(len(np.unique(joint.family)), 1)
    parts = min(max(len(joint) // (_EACH * families), 1), _MOST_PARTS)
    middles, ways_us = _middles(joint, host, start, parts)
    hosts = np.arange(int(host.max()) + 1)
    if not len(middles) or not reached(middles, hosts, middles.joint).all():
        return None
    if float(ways_us.min()) > _MUCH * scatter_us:
        return None
    # few moments say nothing of speed, which the ends then have told well enough
    return solved(middles, hosts, start, drift=drift and parts >= _FEW_PARTS, causal=False)


def _middles(timings: Timings, host: Hosts, clocks: Clocks, parts: int) -> tuple[Timings, Floats]:
    """One moment by the clocks of each two hosts, for each part of the run, and how long the ways are.

    It is the median of what the families of communications say.
    """
    last_us, first_us = _by_host(timings, host, clocks)
    rows: list[Floats] = []
    ways: list[float] = []
    for a, b in combinations(range(last_us.shape[1]), 2):
        both = np.isfinite(first_us[:, a]) & np.isfinite(first_us[:, b])
        # communications stand in the order of the run
        for part in np.array_split(np.flatnonzero(both), parts):
            found = [
                _ways(last_us[rows_of][:, [a, b]], first_us[rows_of][:, [a, b]])
                for family in np.unique(timings.family[part])
                for rows_of in [part[timings.family[part] == family]]
            ]
            told = [pair for pair in found if pair is not None]
            if not told:
                continue
            moment = np.full(last_us.shape[1], np.nan)
            moment[a] = float(np.median(first_us[part, a]))
            moment[b] = moment[a] + float(np.median([there - back for there, back in told])) / 2
            rows.append((moment - clocks.offset_us) / (1 + clocks.drift_ppm * 1e-6))
            ways.append(min(there + back for there, back in told) / 2)
    seen = np.stack(rows) if rows else np.zeros((0, last_us.shape[1]))
    none = np.full(len(rows), -1)
    joint = np.ones(len(rows), np.bool_)
    moments = Timings(start_us=seen, end_us=seen, joint=joint, sender=none, family=none)
    return moments, np.array(ways, np.float64)


def _ways(last_us: Floats, first_us: Floats) -> tuple[float, float] | None:
    """From the first host to the second one and back; None where one of them hardly ever began last.

    Args:
        last_us, first_us: [k, 2] begins and ends of communications of one family.
    """
    first_is_last = last_us[:, 0] >= last_us[:, 1]
    if min(first_is_last.sum(), (~first_is_last).sum()) < _FEWEST:
        return None
    there_us = (first_us[:, 1] - last_us[:, 0])[first_is_last]
    back_us = (first_us[:, 0] - last_us[:, 1])[~first_is_last]
    return float(np.quantile(there_us, _QUICK)), float(np.quantile(back_us, _QUICK))


def _by_host(timings: Timings, host: Hosts, clocks: Clocks) -> tuple[Floats, Floats]:
    """[m, h] when the last rank of each host began, and when its first one ended, by aligned clocks."""
    shape = len(timings), int(host.max()) + 1
    offset_us = clocks.offsets(timings, host)
    last_us, first_us = np.full(shape, -np.inf), np.full(shape, np.inf)
    for column, of in enumerate(host):
        member = timings.members[:, column]
        begin_us = (timings.start_us + offset_us)[member, column]
        end_us = (timings.end_us + offset_us)[member, column]
        last_us[member, of] = np.maximum(last_us[member, of], begin_us)
        first_us[member, of] = np.minimum(first_us[member, of], end_us)
    return last_us, first_us

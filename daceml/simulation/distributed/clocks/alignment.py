"""Clocks of several ranks brought together: what to add to each, by what they communicated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from daceml.errors import AlignmentError
from daceml.simulation.distributed.clocks.clock_estimates import Clocks, Hosts, estimated, sampled
from daceml.simulation.distributed.clocks.clock_latencies import by_latencies
from daceml.simulation.distributed.clocks.clock_program import solved
from daceml.simulation.distributed.clocks.recv_variance import least_variance
from daceml.simulation.distributed.clocks.timings import Floats, Timings

DRIFT_FROM_US = 5e6  # in a shorter run, clocks drift by less than ends of one collective differ
OBSERVATIONS = 6_000  # of which the program is made at most: more hardly move a median

COINCIDE_US = 5.0  # ends that lie farther apart scatter, and some ranks may always end later than others

Objective = Literal["ends", "variance"]
Basis = Literal["ends", "latencies", "variance", "nothing"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """What to add to the clock of each of n ranks to read that of the first one.

    Attributes:
        offset_us: [n] at time zero of the run.
        drift_ppm: [n] microseconds more for each second after.
        host: [n] number of the host: one clock each.
        used: [m] the communications that the answer rests on.
        outliers: how many of the sampled ones were left out, as their ends lie too far apart.
        residual_us: median distance of an end that was used from the others of its collective.
        basis: what it rests on: ends, latencies where ends scatter, variance, or nothing on a single host.
    """

    offset_us: Floats
    drift_ppm: Floats
    host: NDArray[np.int64]
    used: NDArray[np.bool_]
    outliers: int
    residual_us: float
    basis: Basis = "nothing"

    def aligned_us(self, times_us: Floats) -> Floats:
        """Times by the clocks of all ranks, which go along the last axis, by the first clock."""
        return times_us + self.offset_us + self.drift_ppm * times_us * 1e-6


def unaligned(ranks: int) -> Alignment:
    """Clocks as they are."""
    zeros = np.zeros(ranks)
    return Alignment(
        offset_us=zeros, drift_ppm=zeros, host=np.arange(ranks), used=np.zeros(0, np.bool_), outliers=0,
        residual_us=0.0,
    )  # fmt: skip


def align(
    timings: Timings,
    hosts: Sequence[object] | None = None,
    *,
    objective: Objective = "ends",
    drift: bool | None = None,
    observations: int = OBSERVATIONS,
) -> Alignment:
    """Find the offset, and in long runs the drift, of every clock.

    A first estimate is the median difference of the ends that two hosts saw of the same collectives. From
    there a linear program, or the paper's objective, goes on; communications whose ends stay far apart are
    outliers, without which it is solved a second time, with causality: nobody ends before all have begun.
    Where even the rest scatter by more than `COINCIDE_US`, as ends on CPUs do, latencies in both directions
    decide.

    Args:
        timings: `MatchedRun.timings`.
        hosts: [n] what is equal for ranks that read one clock; None is a clock for each rank.
        objective: "ends": ends of one collective coincide, by the sum of absolute distances; "variance":
            communications of one family take equally long, by dPRO's sum of variances (no drift).
        drift: whether clocks run at different speeds; None: if the run lasts longer than `DRIFT_FROM_US`.
        observations: ends that are looked at, at most; evenly spread over the run.
    Raises:
        AlignmentError: nothing relates the clocks of two hosts; drift together with "variance".
    Source: Hu et al., dPRO (MLSys '22), section 4.2, for the variance; the program on ends is ours.
    """
    count = timings.start_us.shape[1]
    host = _numbered(hosts, count)
    lasting_us = _lasting_us(timings)
    if drift is None:
        drift = lasting_us > DRIFT_FROM_US and objective == "ends"
    if drift and objective == "variance":
        raise AlignmentError(
            "the variance of durations says nothing of drift",
            why="a clock that is too fast lengthens all durations of its rank alike",
            fix='give objective="ends", or drift=False',
        )
    if host.max(initial=0) == 0:
        return _same_clock(timings, host)
    taken = sampled(timings, host, observations)
    part = timings.taken(taken)
    start = estimated(part, host, drift=drift)
    basis: Basis = objective
    if objective == "variance":
        inliers = np.ones(len(part), np.bool_)
        clocks = least_variance(part, host, start)
    else:
        clocks = solved(part, host, start, drift=drift, causal=False)
        inliers = _inliers(part, host, clocks)
        clocks = solved(part.taken(inliers), host, clocks, drift=drift, causal=True)
    residual_us = _residual_us(part.taken(inliers), host, clocks)
    if basis == "ends" and residual_us > COINCIDE_US:
        near = timings.taken(_inliers(timings, host, clocks))
        better = by_latencies(near, host, clocks, drift=drift, scatter_us=residual_us)
        clocks, basis = (clocks, basis) if better is None else (better, "latencies")
    used = np.zeros(len(timings), np.bool_)
    used[np.flatnonzero(taken)[inliers]] = True
    return Alignment(
        offset_us=(clocks.offset_us - clocks.offset_us[0])[host] + 0.0,
        drift_ppm=clocks.drift_ppm[host],
        host=host,
        used=used,
        outliers=int((~inliers).sum()),
        residual_us=residual_us,
        basis=basis,
    )


def _numbered(hosts: Sequence[object] | None, count: int) -> NDArray[np.int64]:
    """[n] hosts by their first rank, so that the first rank is on host 0."""
    if hosts is None:
        return np.arange(count)
    if len(hosts) != count:
        raise AlignmentError(f"{len(hosts)} hosts for {count} ranks", fix="name the host of every rank")
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(host, len(numbers)) for host in hosts], np.int64)


def _lasting_us(timings: Timings) -> float:
    """The longest time between a clock's first start and its last end."""
    known = timings.members
    first_us = np.min(timings.start_us, axis=0, where=known, initial=np.inf)
    last_us = np.max(timings.end_us, axis=0, where=known, initial=-np.inf)
    return float(np.max(last_us - first_us, initial=0.0))


def _same_clock(timings: Timings, host: NDArray[np.int64]) -> Alignment:
    """One host: there is nothing to find out."""
    zeros = np.zeros(len(host))
    resting = Clocks(offset_us=np.zeros(1), drift_ppm=np.zeros(1))
    return Alignment(
        offset_us=zeros, drift_ppm=zeros, host=host, used=np.zeros(len(timings), np.bool_), outliers=0,
        residual_us=_residual_us(timings.taken(timings.joint), host, resting),
    )  # fmt: skip


def _residual_us(timings: Timings, host: Hosts, clocks: Clocks) -> float:
    distances = _distances(timings, clocks.offsets(timings, host))
    return float(np.nanmedian(np.abs(distances))) if len(distances) else 0.0


def _distances(timings: Timings, offsets_us: Floats) -> Floats:
    """[m, n] by how much each end lies behind the median of its communication."""
    ends = timings.end_us + offsets_us
    return ends - np.nanmedian(ends, axis=1, keepdims=True)


_FAR = 8.0  # times the usual distance
_NEAR_US = 5.0  # distances below are never outliers: timestamps are no better


def _inliers(timings: Timings, host: Hosts, clocks: Clocks) -> NDArray[np.bool_]:
    """[m] whose ends lie no farther apart than is usual in this run.

    At least half of all are: what is usual is the median over communications.
    """
    widest = np.nanmax(np.abs(_distances(timings, clocks.offsets(timings, host))), axis=1)
    return widest <= max(_FAR * float(np.median(widest)), _NEAR_US)

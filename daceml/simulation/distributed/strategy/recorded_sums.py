"""How long sums of gradients took in a recorded run, and what sums of other sizes would take there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from daceml.simulation.distributed.communication import CommunicationKind
from daceml.simulation.distributed.matching import MatchedRun
from daceml.simulation.distributed.strategy.recorded_moments import Moments
from daceml.simulation.distributed.strategy.synchronization import Stage, Synchronization
from daceml.simulation.distributed.waits import Waits
from daceml.simulation.network.topology import OVERHEAD_US

_ADDED_BYTES, _ADDED = 32.0, 1e-3  # by which a message may be larger than the gradients in it
SMALL_BYTES = 2.0**16  # of a collective in which bandwidth has hardly a part
# Of a small all-reduce between processes on one host, over Gloo: 50 to 150 us in runs of ours. An assumption.
PROCESSOR_LATENCY_US = 100.0


@dataclass(frozen=True, kw_only=True)
class Sum:
    """One recorded sum of gradients.

    Attributes:
        step: its number among the steps.
        begin_us: when its last member began; end_us: when its first member ended.
        busy_us: from its begin, or the end of the one before it if that was later: what it takes alone.
    """

    step: int
    size_bytes: float
    begin_us: float
    end_us: float
    busy_us: float


def sums_in(
    run: MatchedRun, waits: Waits, moments: Moments, sizes: Collection[float] | None
) -> tuple[Sum, ...]:
    """All-reduces between the begin of a backward pass and the end of its step, by their begin.

    Args:
        waits: of the run.
        sizes: of the buckets, in bytes; None where nobody knows them, and every all-reduce counts.
    """
    found: list[Sum] = []
    busy_until = dict.fromkeys(range(len(moments.began_us)), -np.inf)
    first_us, last_us = moments.backward_us.min(axis=1), moments.ended_us.max(axis=1)
    for row in np.argsort(waits.begin_us, kind="stable").tolist():
        match = run.matches[row]
        if match.kind is not CommunicationKind.ALL_REDUCE or not match.size_bytes > 0:
            continue
        if sizes is not None and not _among(match.size_bytes, sizes):
            continue
        begin_us, end_us = float(waits.begin_us[row]), float(waits.begin_us[row] + waits.pure_us[row])
        steps = np.flatnonzero((first_us <= begin_us) & (begin_us <= last_us))
        if not len(steps):
            continue
        step = int(steps[-1])
        busy_us = max(0.0, end_us - max(begin_us, busy_until[step]))
        busy_until[step] = max(busy_until[step], end_us)
        found.append(
            Sum(step=step, size_bytes=match.size_bytes, begin_us=begin_us, end_us=end_us, busy_us=busy_us)
        )
    return tuple(found)


def _among(size_bytes: float, sizes: Collection[float]) -> bool:
    """Whether a message is one of these buckets; DistDataParallel adds some bytes of its own to each."""
    return any(abs(size_bytes - known) <= _ADDED_BYTES + _ADDED * known for known in sizes)


def latency_seen(run: MatchedRun, waits: Waits, *, on_device: bool) -> tuple[float, str]:
    """What a sum of next to nothing takes, and how that is known."""
    small = [
        float(waits.pure_us[row])
        for row, match in enumerate(run.matches)
        if match.kind.joint and match.size_bytes <= SMALL_BYTES and waits.pure_us[row] > 0
    ]
    if small:
        return float(np.median(small)), f"seen in {len(small)} small collectives of the run"
    if on_device:
        return OVERHEAD_US, "assumed, as of NCCL: the run had no small collective"
    return PROCESSOR_LATENCY_US, "assumed, as of Gloo: the run had no small collective"


def learned(rows: Sequence[tuple[float, float]], latency_us: float) -> tuple[Synchronization, str]:
    """What sums of any size would take, from those that were recorded.

    Straight lines from the latency at nothing through the median of each size; beyond the largest one the
    last line goes on. A sum of two tensors never takes longer than two sums of one: where medians say
    otherwise, as they do if the first buckets share their cores with the backward pass, there is one
    bandwidth for all sizes, with which all of them together take as long as recorded.

    Args:
        rows: (bytes, microseconds) of each recorded sum.
    Returns:
        and how it was found, in a sentence.
    """
    times: dict[float, list[float]] = {}
    for size, time_us in rows:
        times.setdefault(size, []).append(time_us)
    sizes = np.array(sorted(times))
    medians = np.array([float(np.median(times[size])) for size in sizes.tolist()])
    latency_us = min(latency_us, float(medians.min()))
    slopes = np.diff(np.concatenate([[latency_us], medians])) / np.diff(np.concatenate([[0.0], sizes]))
    if (np.diff(slopes) <= 0).all() and (slopes >= 0).all():
        how = "lines through a latency and the medians of " + _words(len(sizes))
        x, y = np.concatenate([[0.0], sizes]), np.concatenate([[latency_us], medians])
        last = float(slopes[-1])

        def duration_us(size: float) -> float:
            if size >= x[-1]:
                return float(y[-1]) + (size - float(x[-1])) * last
            return float(np.interp(size, x, y))
    else:
        per_byte_us = float(np.maximum(medians - latency_us, 0.0).sum() / sizes.sum())
        how = f"one bandwidth for {_words(len(sizes))}, of which larger ones took more for each byte"

        def duration_us(size: float) -> float:
            return latency_us + size * per_byte_us

    return Synchronization(stages=(Stage(name="all-reduce", duration_us=duration_us),)), how


def _words(count: int) -> str:
    return "1 size" if count == 1 else f"{count} sizes"

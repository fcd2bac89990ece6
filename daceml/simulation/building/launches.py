"""A kernel starts no earlier than some microseconds after the start of the call that launches it.

From the start of the call, as the device may begin before the call returns; Daydream's edge from its end
costs 1 to 2 % on real traces.
"""

from __future__ import annotations

import numpy as np

from daceml.simulation.building import runtime_calls
from daceml.simulation.building.draft import Draft, Row
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import EdgeKind

_FEW = 10  # with fewer unqueued launches of one call its latency is that of all calls
_USUAL_US = 5.0  # where no launch met an idle stream
_PERCENTILE = 1.0
_JITTER_US = 100.0  # by which one launch takes longer than others


def add_launch_edges(draft: Draft) -> None:
    """An edge for each kernel whose launch was recorded; of a graph launch, for each of its kernels."""
    draft.launch_lag_us = _latencies(draft)
    missing = 0
    for number in draft.device_rows():
        row = draft.rows[number]
        if row.launched_by == NOTHING:
            missing += 1
            continue
        launch = draft.rows[row.launched_by]
        observed_us = max(row.start_us - launch.start_us, 0.0)
        lag_us = min(draft.latency_us(launch.name), observed_us)
        draft.edge(row.launched_by, number, EdgeKind.LAUNCH, lag_us=lag_us, from_start=True)
    if missing:
        share = missing / len(draft.device_rows())
        draft.notes.append(
            f"{missing} of the device's tasks ({share:.0%}) were launched by no recorded call:"
            " they follow their stream"
        )


def keep_own_latencies(draft: Draft) -> None:
    """Where nothing but its launch kept work waiting, the launch took as long as it was recorded to take.

    After all waits are known: a start that another stream explains says nothing of the launch.
    """
    waited = {target for _, target, _, _, kind in draft.edges if kind is not EdgeKind.LAUNCH}
    for index, (source, target, lag_us, from_start, kind) in enumerate(draft.edges):
        if kind is not EdgeKind.LAUNCH or target in waited or draft.launches[source][0] != target:
            continue
        row, before = draft.rows[target], draft.before(target)
        own_us = row.start_us - draft.rows[source].start_us
        idle = before == NOTHING or draft.rows[before].end_us <= draft.rows[source].start_us + lag_us
        if idle and lag_us < own_us <= lag_us + _most_jitter_us(row):
            draft.edges[index] = (source, target, own_us, from_start, kind)


def _most_jitter_us(work: Row) -> float:
    """By how much a launch may take longer than others: memory that may be moved is staged first."""
    return np.inf if runtime_calls.PAGEABLE.search(work.name) else _JITTER_US


def _latencies(draft: Draft) -> dict[str, float]:
    """Name of a call -> microseconds from its start to its kernel's on an idle stream; "" is for all."""
    samples: dict[str, list[float]] = {}
    for number in draft.device_rows():
        row, before = draft.rows[number], draft.before(number)
        if row.launched_by == NOTHING:
            continue
        launch = draft.rows[row.launched_by]
        idle = before == NOTHING or draft.rows[before].end_us < launch.begin_us
        if idle and draft.launches[row.launched_by][0] == number and row.start_us >= launch.begin_us:
            samples.setdefault(launch.name, []).append(row.start_us - launch.begin_us)
    every = [value for values in samples.values() for value in values]
    found = {name: _low(values) for name, values in samples.items() if len(values) >= _FEW}
    return {**found, "": _low(every) if every else _USUAL_US}


def _low(values: list[float]) -> float:
    return float(np.percentile(values, _PERCENTILE))

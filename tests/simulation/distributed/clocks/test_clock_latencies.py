"""Ends that scatter, and of which one rank's always come later: ways in both directions tell the offset."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.simulation.distributed.clocks.alignment import Alignment, align
from daceml.simulation.distributed.clocks.timings import Timings

TRUE_US = 5_000.0  # to add to the second clock


def scattered(*families: tuple[float, float], count: int = 300, one_sided: bool = False) -> Timings:
    """Two ranks whose threads wake up some 10 us after a message came.

    Args:
        families: (how long a way takes, by how much the second rank always ends later) of each.
        one_sided: the second rank is always the last one to begin.
    """
    draw = np.random.default_rng(0)
    rows: list[tuple[float, np.ndarray, np.ndarray, int]] = []
    for number, (way_us, later_us) in enumerate(families):
        for begin in draw.uniform(0, 1e6, count):
            early = draw.exponential(500.0)
            start = np.array([begin, begin - early] if draw.random() < 0.5 else [begin - early, begin])
            start = np.array([begin - early, begin]) if one_sided else start
            end = begin + way_us + np.array([0.0, later_us]) + draw.exponential(30.0, 2)
            rows.append((begin, start, end, number))
    rows.sort(key=lambda row: row[0])
    clocks = np.array([0.0, TRUE_US])
    return Timings(
        start_us=np.stack([start for _, start, _, _ in rows]) - clocks,
        end_us=np.stack([end for _, _, end, _ in rows]) - clocks,
        joint=np.ones(len(rows), np.bool_),
        sender=np.full(len(rows), -1),
        family=np.array([number for _, _, _, number in rows]),
    )


def off_us(found: Alignment) -> float:
    return float(found.offset_us[1] - TRUE_US)


def test_ways_decide_where_ends_scatter():
    found = align(scattered((60.0, 0.0), (200.0, 0.0)))
    assert found.basis == "latencies" and found.residual_us > 5
    assert abs(off_us(found)) < 2


def test_a_kind_in_which_one_rank_always_ends_later_is_outvoted():
    timings = scattered((60.0, 25.0), (70.0, 0.0), (80.0, 0.0))
    assert abs(off_us(align(timings))) < 2
    alone = timings.taken(timings.family == 0)
    # of that kind alone, nothing tells the algorithm from the clock
    assert off_us(align(alone)) == pytest.approx(-12.5, abs=4)


def test_ends_decide_where_one_rank_is_always_last():
    assert align(scattered((60.0, 0.0), one_sided=True)).basis == "ends"


def test_ends_decide_where_collectives_are_few():
    assert align(scattered((60.0, 0.0), count=15)).basis == "ends"


def test_ends_decide_where_ways_are_long():
    assert align(scattered((5_000.0, 0.0))).basis == "ends"


def test_ends_that_coincide_are_enough():
    timings = scattered((60.0, 0.0))
    together = np.repeat(timings.end_us[:, :1], 2, axis=1) - np.array([0.0, TRUE_US])
    exact = Timings(
        start_us=timings.start_us, end_us=together, joint=timings.joint, sender=timings.sender,
        family=timings.family,
    )  # fmt: skip
    found = align(exact)
    assert found.basis == "ends" and abs(off_us(found)) < 1e-3

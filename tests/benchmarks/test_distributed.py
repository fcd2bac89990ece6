"""Benchmarks of several ranks: what is drawn is what is looked for, and what is promised is judged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.distributed import alignment, replay_t3
from benchmarks.distributed.drawn_from_traces import drawn, shifted, worst_us
from daceml.simulation.distributed.clocks.alignment import align, unaligned
from daceml.simulation.distributed.clocks.timings import Timings

DATA = os.environ.get("DACEML_DATA")


def recorded() -> Timings:
    """Two ranks, three collectives, ends at most 2 us apart."""
    start = np.array([[0.0, 40.0], [100.0, 90.0], [200.0, 260.0]])
    end = np.array([[50.0, 51.0], [120.0, 118.0], [300.0, 300.0]])
    return Timings(
        start_us=start, end_us=end, joint=np.ones(3, np.bool_), sender=np.full(3, -1),
        family=np.zeros(3, np.int64),
    )  # fmt: skip


def test_clocks_that_are_known_are_off_by_nothing():
    assert worst_us(unaligned(2), [0, 0], [0, 0], 60e6) == 0
    assert worst_us(unaligned(2), [0, 7], [0, 0], 60e6) == pytest.approx(7)
    assert worst_us(unaligned(2), [0, 0], [0, 10], 60e6) == pytest.approx(600, rel=1e-4)


def test_a_shifted_run_is_found_again():
    found = align(shifted(recorded(), [0, 500], [0, 0]))
    assert worst_us(found, [0, 500], [0, 0], 0) <= 2


def test_a_drawn_run_has_the_clocks_and_the_outliers_that_were_asked_for():
    run = drawn(
        recorded(), unaligned(2), offset_us=[0, 1e6], drift_ppm=[0, 50], count=300, lasting_us=60e6,
        outliers=0.1,
    )  # fmt: skip
    apart_us = np.abs(np.diff(run.end_us * (1 + np.array([0, 50]) * 1e-6) + np.array([0, 1e6])))[:, 0]
    assert np.median(apart_us) < 5 and 15 <= (apart_us > 50).sum() <= 45


def test_only_what_is_promised_is_a_bar():
    row = {"case": "a", "worst_us": 6.0, "median_us": 1.0, "rounds": 1, "collectives": 8, "seconds": 0.1}
    (bar,) = alignment.judged([{**row, "promised": True}, {**row, "promised": False}])
    assert not bar.met and bar.figure == 6.0 and bar.limit == 5.0


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="no recorded traces: DACEML_DATA is not set")
def test_a_rank_that_begins_later_is_noticed_by_others_in_a_joint_graph_only():
    rows, bars = replay_t3.measured(Path(DATA or ""), quick=True)
    later = [row["others_later_us"] for row in rows if "others_later_us" in row]
    assert later == [pytest.approx(2000, abs=50), 0]
    assert [bar.met for bar in bars] == [True] * 4

"""Waiting for others, and what communicating takes by itself."""

from __future__ import annotations

import numpy as np

from daceml.simulation.distributed.clocks.alignment import Alignment, unaligned
from daceml.simulation.distributed.waits import separated
from tests.support.recorded_ranks import timings_of

NAN = float("nan")


def clocks(*offset_us: float) -> Alignment:
    zeros = np.zeros(len(offset_us))
    return Alignment(
        offset_us=np.array(offset_us), drift_ppm=zeros, host=np.arange(len(offset_us)),
        used=np.zeros(0, np.bool_), outliers=0, residual_us=0.0,
    )  # fmt: skip


def test_communication_begins_with_the_last_member():
    waits = separated(timings_of([[0, 60, 90]], [[101, 100, 102]]), unaligned(3))
    assert waits.wait_us.tolist() == [[90, 30, 0]]
    assert (waits.begin_us.tolist(), waits.pure_us.tolist()) == ([90], [10])
    assert waits.lag_us.tolist() == [[1, 0, 2]]


def test_the_clocks_decide_who_waited():
    timings = timings_of([[0, 60]], [[100, 160]])
    assert separated(timings, unaligned(2)).wait_us.tolist() == [[60, 0]]
    assert separated(timings, clocks(0, -60)).wait_us.tolist() == [[0, 0]]


def test_who_is_no_member_waits_for_nobody():
    waits = separated(timings_of([[0, NAN, 10]], [[20, NAN, 21]]), unaligned(3))
    assert np.isnan(waits.wait_us[0, 1]) and not waits.joins[0, 1]
    assert waits.pure_us.tolist() == [10]


def test_a_sender_that_was_done_early_did_not_wait():
    waits = separated(timings_of([[0, 100]], [[7, 130]], joint=False, senders=[0]), unaligned(2))
    assert waits.joins.tolist() == [[False, True]]
    assert waits.lag_us.tolist() == [[7, 0]] and waits.pure_us.tolist() == [30]


def test_wrong_clocks_leave_nothing_of_communication_but_members_still_wait():
    waits = separated(timings_of([[0, 5000]], [[50, 5040]]), unaligned(2))
    assert waits.joins.all() and waits.pure_us.tolist() == [0]
    assert waits.lag_us.tolist() == [[0, 40]]

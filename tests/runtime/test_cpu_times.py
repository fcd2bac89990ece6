"""What /proc/stat says about the others on the machine."""

from __future__ import annotations

import pytest

from daceml.runtime.cpu_times import TICKS_PER_S, CpuTimes, cpu_times, foreign_share

#      user nice system idle iowait irq softirq steal guest guest_nice
STAT = "cpu  100 10 20 800 50 1 2 17 5 0\ncpu0 1 2 3\n"


def test_stolen_time_is_busy_and_waiting_is_not():
    seen = cpu_times(STAT)
    assert seen.busy_s * TICKS_PER_S == pytest.approx(150)
    assert seen.total_s * TICKS_PER_S == pytest.approx(1000)


def test_an_old_kernel_has_fewer_columns():
    assert cpu_times("cpu 1 1 1 7\n").total_s * TICKS_PER_S == pytest.approx(10)


def test_this_machine_can_be_read():
    seen = cpu_times()
    assert 0 <= seen.busy_s <= seen.total_s


def test_ones_own_time_is_not_foreign():
    before, after = CpuTimes(busy_s=10, total_s=100), CpuTimes(busy_s=12, total_s=104)
    assert foreign_share(before, after, own_s=2.0) == 0.0
    assert foreign_share(before, after, own_s=1.0) == 0.25
    assert foreign_share(before, after, own_s=5.0) == 0.0  # the clocks differ by a tick


def test_no_time_at_all_says_nothing():
    now = CpuTimes(busy_s=1, total_s=1)
    assert foreign_share(now, now, own_s=0.0) == 0.0

"""What /proc/stat says about the others on the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from daceml.runtime.timing.machine_load import (
    TICKS_PER_S,
    CpuTimes,
    Others,
    cpu_times,
    crowded,
    foreign_share,
)

#      user nice system idle iowait irq softirq steal guest guest_nice
STAT = "cpu  100 10 20 800 50 1 2 17 5 0\ncpu0 1 2 3\n"


def test_stolen_time_is_busy_and_waiting_is_not():
    seen = cpu_times(STAT)
    assert seen.busy_s * TICKS_PER_S == pytest.approx(150)
    assert seen.total_s * TICKS_PER_S == pytest.approx(1000)


def test_cores_of_ones_own_are_told_apart():
    stat = "cpu 9 9 9 9\ncpu0 1 1 1 7\ncpu1 2 2 2 4\ncpu12 5 5 5 5\nintr 3\n"
    seen = cpu_times(stat, cores={0, 1})
    assert (seen.busy_s * TICKS_PER_S, seen.total_s * TICKS_PER_S) == pytest.approx((9, 20))
    assert cpu_times(stat, cores={7}) == cpu_times(stat)  # nobody tells this one apart


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


def test_others_are_watched_from_then_on(monkeypatch: pytest.MonkeyPatch):
    def say(busy_s: float, total_s: float) -> None:
        seen = CpuTimes(busy_s=busy_s, total_s=total_s)
        monkeypatch.setattr("daceml.runtime.timing.machine_load.cpu_times", lambda **_: seen)

    monkeypatch.setattr("time.process_time", lambda: 1.0)
    say(10, 100)
    others = Others()
    say(11, 104)
    assert others.share() == pytest.approx(0.25, abs=0.01)
    assert Others().share() == 0.0


def test_what_a_compiler_takes_is_ones_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "daceml.runtime.timing.machine_load.foreign_share", lambda before, after, own_s: own_s
    )
    monkeypatch.setattr("time.process_time", lambda: 1.0)
    others = Others()
    assert others.share() == 0.0
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert others.share() > 0.0


def test_a_machine_is_crowded_where_threads_wait_for_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assert crowded(0.15, threads=64) and not crowded(0.15, threads=32)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5})
    assert crowded(0.15, threads=1) and not crowded(0.0, threads=1)

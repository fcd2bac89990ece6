"""Benchmarks of real runs: what is known beforehand foretells a step, and what is measured is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.distributed import link_forecast, real_runs, shaped_link
from benchmarks.distributed.link_forecast import Link, foretold_us, plan_of, step_of
from benchmarks.distributed.rank_processes import together
from benchmarks.distributed.real_networks import Sending
from benchmarks.distributed.real_rank import Job
from daceml.simulation.distributed.strategy.plan import bytes_of_bucket
from tests.support.golden import golden, raises

MIB = 2**20
# a latency of 100 us and 1 MiB in 1 ms, by a tenth of a core
ROWS = [(4096, 100.0, 50.0), (MIB, 1100.0, 110.0), (8 * MIB, 8100.0, 810.0)]


def link() -> Link:
    return Link.of([ROWS, ROWS], "a story")


def chain(scale: float = 1.0) -> dict[str, Any]:
    """Four gradients of 1 MiB each."""
    gradients = [[name, 1000.0 * scale, MIB] for name in "dcba"]
    return {"forward_us": 2000.0 * scale, "gradients": gradients, "update_us": 500.0 * scale}


def test_a_table_tells_latency_bandwidth_and_what_of_a_core_it_takes():
    known = link()
    assert known.table.duration_us(4 * MIB) == pytest.approx(4100)
    assert known.interference == pytest.approx(0.1)


def test_half_the_bandwidth_leaves_the_latency_and_the_work():
    half = link().slower(2)
    assert half.table.duration_us(4096) == 100
    assert half.table.duration_us(MIB) == 2100
    assert half.interference == pytest.approx(0.05)


def test_ranks_that_are_slower_are_said_to_be_so():
    step = step_of([chain(0.9), chain(1.1)])
    assert step.slowness == pytest.approx((0.9, 1.1))
    assert [one.duration_us for one in step.computations] == pytest.approx([2000, 1000, 1000, 1000, 1000])
    assert step.gradient_bytes == 4 * MIB


def test_a_limit_that_is_given_holds_for_the_first_bucket_too():
    step = step_of([chain(), chain()])
    assert plan_of(step, Sending()).buckets == (2, 5)  # 1 MiB, then up to 25
    assert plan_of(step, Sending(cap_mb=2)).buckets == (3, 5)
    assert plan_of(step, Sending(cap_mb=100, parts=4)).parts == (4,)


def test_what_is_sent_behind_the_backward_pass_makes_a_step_longer():
    step = step_of([chain(), chain()])
    alone = Link(table=link().table, interference=0.0)
    whole = foretold_us(step, plan_of(step, Sending(cap_mb=100)), alone)
    assert whole == pytest.approx(2000 + 4000 + 4100 + 500)
    # the last of four is ready at 6000, when the one before it has been sent for 900 of its 1100 us
    assert foretold_us(step, plan_of(step, Sending(cap_mb=1)), alone) == pytest.approx(3000 + 4 * 1100 + 500)


def test_what_computes_is_slowed_by_what_sending_takes():
    step = step_of([chain(), chain()])
    plan = plan_of(step, Sending(cap_mb=2))
    alone = Link(table=link().table, interference=0.0)
    assert foretold_us(step, plan, alone) < foretold_us(step, plan, link())


def test_found_buckets_are_limits_that_close_where_they_should():
    step = step_of([chain(), chain()])
    one = link_forecast.found(step, link(), budget_s=1)
    sending = link_forecast.as_sending(one)
    closed: list[int] = []
    size, limits = 0, [int(cap * MIB) for cap in sending.caps_mb]
    for number in range(1, 5):
        size += MIB
        if size >= limits[len(closed)] or number == 4:
            closed.append(size)
            size = 0
    sent = [bytes_of_bucket(one.step, one.plan, bucket) for bucket in range(len(one.plan.buckets))]
    assert closed == sent
    assert one.step_us <= foretold_us(step, plan_of(step, Sending()), link())


def test_a_job_is_read_as_it_was_written(tmp_path: Path):
    cells = {"default": (1e9, Sending()), "found": (1e8, Sending(caps_mb=(1.5, 2.0)))}
    job = Job(what="timed", network="transformer", links=(1e9,), cells=cells, rounds=3, steps=2)
    assert Job.read(job.written(tmp_path / "job.json")) == job


def test_a_rate_is_set_with_tokens_for_a_whole_segment():
    words = shaped_link.rate_command(1e8)
    assert words[:4] == ("tc", "qdisc", "replace", "dev")
    assert words[words.index("rate") + 1] == "100000000bit"
    assert int(words[words.index("burst") + 1].removesuffix("b")) > 65_536


@pytest.mark.slow
def test_a_link_holds_what_is_sent_to_its_rate(tmp_path: Path):
    if (reason := shaped_link.why_not()) is not None:
        pytest.skip(reason)
    job = Job(what="linked", network="transformer", links=(1e9,), repeats=1)
    with shaped_link.linked_namespaces() as prefixes:
        program = ("benchmarks.distributed.real_rank", str(job.written(tmp_path / "job.json")), str(tmp_path))
        variables = {"GLOO_SOCKET_IFNAME": shaped_link.INTERFACE}
        ranks = together(program, tmp_path, prefixes=prefixes, variables=variables)
    for rank in ranks:
        size, lasting_us, _ = rank["table"]["1e+09"][-1]
        # each of two ranks sends as much as the tensor has; what the bucket holds goes without waiting
        assert lasting_us >= (size - 2 * 68_750) * 8 / 1e9 * 1e6


@pytest.mark.parametrize("there", [False, True])
def test_a_machine_that_does_not_allow_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
):
    if there:
        unshare = tmp_path / "unshare"
        unshare.write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1\n")
        unshare.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = shaped_link.why_not() or ""
    ours, _, theirs = reason.partition(": ")
    assert ours == golden()
    assert ("Operation not permitted" if there else "'unshare'") in theirs


def test_a_rank_that_fails_is_told_with_what_it_said(tmp_path: Path):
    missing = tmp_path / "missing.json"
    with raises(RuntimeError, "rank 0", missing, exact=False):
        together(("json.tool", str(missing)), tmp_path, prefixes=[()])


# ---- what is judged


def ratio(median: float, low: float, high: float) -> dict[str, float]:
    return {"median": median, "low": low, "high": high, "n": 9}


def strategy(
    found: dict[str, float], default: dict[str, float], measured: dict[str, float]
) -> dict[str, Any]:
    return {
        "case": "strategy at 1000 Mbit/s", "network": "a", "foretold": 0.9, "measured": measured,
        "found_us": found, "default_us": default,
    }  # fmt: skip


def test_a_replay_is_judged_by_the_runs_own_interval_where_that_is_wider():
    row: dict[str, Any] = {
        "case": "replay", "network": "a", "ranks": 2, "error": -0.06, "errors": [-0.06], "interval": 0.08,
        "profiled_error": 0.0, "inflation": 1.02, "measured_us": 1e5, "steps": 20,
    }  # fmt: skip
    assert real_runs.judged([row])[0].met
    assert not real_runs.judged([{**row, "interval": 0.01}])[0].met
    assert not [bar for bar in real_runs.judged([{**row, "ranks": 4}]) if "replay" in bar.name]


def test_an_effect_is_off_by_the_ratio_of_ratios():
    row = {"case": "one bucket", "network": "a", "foretold": 1.21, "measured": ratio(1.1, 1.0, 1.2)}
    bar = real_runs.judged([row])[0]
    assert bar.figure == pytest.approx(0.1)
    assert "one bucket" in bar.name


def test_a_strategy_wins_only_with_disjoint_intervals():
    apart = strategy(ratio(90, 88, 94), ratio(100, 95, 105), ratio(0.9, 0.85, 0.95))
    touching = strategy(ratio(80, 78, 96), ratio(100, 95, 105), ratio(0.8, 0.75, 1.02))
    assert real_runs.judged([apart])[0].figure == pytest.approx(0.9)
    assert not real_runs.judged([touching])[0].met


def test_a_strategy_loses_where_the_default_is_faster_in_nearly_all_rounds():
    slower = strategy(ratio(102, 100, 104), ratio(100, 95, 105), ratio(1.02, 1.01, 1.03))
    even = strategy(ratio(101, 96, 104), ratio(100, 95, 105), ratio(1.01, 0.97, 1.03))
    assert [bar.figure for bar in real_runs.judged([slower, even])][1] == 1


def test_without_a_link_nothing_is_met_and_the_reason_is_told():
    rows = [
        {"case": case, "network": "a", "missing": "no tc"} for case in ("replay", "one bucket", "strategy")
    ]
    bars = real_runs.judged(rows)
    assert [bar.met for bar in bars] == [False] * 4
    assert {bar.note for bar in bars} == {"no tc"}

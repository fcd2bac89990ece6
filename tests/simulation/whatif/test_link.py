"""Another link for a run that communicates."""

from __future__ import annotations

import math

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.links import Link, link_of
from daceml.simulation.whatif.link import AnotherLink
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.simulation.whatif.training_runs import two_layers
from tests.support.golden import raises
from tests.support.task_stories import graph_of


def distributed() -> TaskGraph:
    return graph_of(
        "bw gpu0 30",
        "ncclAllReduce gpu0.7 100 kind collective after bw",
        "ncclBarrier gpu0.7 8 kind collective",
        "sgd gpu0 10 after ncclBarrier",
    )


def to(wanted: str, latency_us: float = 20) -> AnotherLink:
    return AnotherLink(
        recorded=link_of("100Gbps"), wanted=link_of(wanted), latency_us=Estimate.known(latency_us)
    )


def test_twice_the_bandwidth_halves_what_is_not_latency():
    schedule = simulate(applied(to("200Gbps"), distributed()))
    assert schedule["ncclAllReduce"] == (30, 90)  # 20 + 80 / 2
    assert schedule["ncclBarrier"] == (90, 98)  # all of it is latency
    assert schedule["sgd"] == (98, 108)


def test_the_same_link_changes_nothing_and_half_of_it_is_slower():
    assert simulate(applied(to("100Gbps"), distributed())).makespan_us == 148
    assert simulate(applied(to("50Gbps"), distributed()))["ncclAllReduce"] == (30, 210)  # 20 + 80 * 2


@pytest.mark.parametrize("wanted", ["25Gbps", "400Gbps"])
def test_at_best_is_no_slower_than_at_worst(wanted: str):
    what = AnotherLink(recorded=link_of("100Gbps"), wanted=link_of(wanted))
    fast, likely, slow = (
        simulate(applied(what.at(side), distributed())).makespan_us for side in ("fast", "likely", "slow")
    )
    assert fast < likely < slow


def test_a_run_of_one_device_is_refused():
    with raises(WhatIfError, AnotherLink.title, "'ddp'"):
        applied(to("200Gbps"), two_layers(1))
    with raises(WhatIfError, AnotherLink.title, "CPU"):
        applied(to("200Gbps"), graph_of("c10d::allreduce_ cpu 5 kind operator"))
    endless = AnotherLink(recorded=Link(bytes_per_s=math.inf, latency_us=0), wanted=link_of("1GB/s"))
    with raises(WhatIfError, AnotherLink.title):
        applied(endless, distributed())
    with raises(WhatIfError, "-1"):
        applied(to("200Gbps", latency_us=-1), distributed())

"""Mixed precision: what gets faster, what stays, and where there is nothing to gain."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.support.golden import raises
from tests.support.task_stories import graph_of

RUN = graph_of(
    "volta_sgemm gpu0 30 phase forward",
    "relu gpu0 10 phase forward",
    "sgemm_tf32 gpu0 20 phase backward",
    "sgemm_fp16 gpu0 8 phase backward",
    "adam gpu0 6 phase optimizer",
)
CERTAIN = AutomaticMixedPrecision(floor_us=Estimate.known(0), tf32_speedup=Estimate.known(2.0))


def test_products_get_faster_by_more_than_others_and_the_optimizer_stays():
    schedule = simulate(applied(CERTAIN, RUN))
    assert schedule["volta_sgemm"] == (0, 10) and schedule["relu"] == (10, 15)
    assert schedule["sgemm_tf32"] == (15, 25) and schedule["sgemm_fp16"] == (25, 33)
    assert schedule["adam"] == (33, 39)


def test_what_a_kernel_takes_at_least_does_not_get_faster():
    run = graph_of("relu gpu0 2", "sgemm gpu0 32")
    schedule = simulate(applied(AutomaticMixedPrecision(floor_us=Estimate.known(2)), run))
    assert schedule["relu"] == (0, 2) and schedule["sgemm"] == (2, 14)


def test_at_best_it_is_faster_than_at_worst():
    best, likely, worst = (
        simulate(applied(AutomaticMixedPrecision().at(side), RUN)).makespan_us
        for side in ("fast", "likely", "slow")
    )
    assert best < likely < worst < simulate(RUN).makespan_us


@pytest.mark.parametrize(
    ("sentences", "facts"),
    [
        (("op cpu 1 kind operator",), ()),
        (("hgemm gpu0 9", "add_half gpu0 1"), ()),
        (("hgemm gpu0 9", "relu gpu0 1"), ("100%",)),
    ],
    ids=["no kernels", "half precision", "half precision of products"],
)
def test_a_run_without_float32_is_refused(sentences: tuple[str, ...], facts: tuple[str, ...]):
    with raises(WhatIfError, AutomaticMixedPrecision.title, *facts):
        applied(AutomaticMixedPrecision(), graph_of(*sentences))

"""The optimizer runs in every k-th step."""

from __future__ import annotations

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.gradient_accumulation import GradientAccumulation
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.support.golden import golden
from tests.support.task_stories import graph_of

STEPS = [
    sentence
    for k in range(2)
    for sentence in (
        f"lb{k} cpu 2 phase backward step {k}",
        f"back{k} gpu0 10 with lb{k} + 3 phase backward step {k}",
        f"sum{k} link 20 after back{k} step {k}",
        f"lo{k} cpu 2 phase optimizer step {k}",
        f"adam{k} gpu0 10 with lo{k} + 3 after sum{k} phase optimizer step {k}",
    )
]


def test_a_part_of_a_batch_does_its_part_of_the_update():
    graph = graph_of(*STEPS)
    assert simulate(graph)["adam1"] == (73, 83)
    schedule = simulate(applied(GradientAccumulation(every=2, add_share=Estimate.known(0.3)), graph))
    assert schedule["back0"] == (3, 14.5)  # half of 3 us to add
    assert schedule["sum0"] == (14.5, 24.5) and schedule["adam0"] == (24.5, 29.5)
    assert schedule["back1"] == (29.5, 41) and schedule["adam1"] == (51, 56)


def test_the_more_parts_the_faster_is_each_however_many_steps_were_recorded():
    graph = graph_of(*STEPS)
    spans = [
        simulate(applied(GradientAccumulation(every=k, add_share=Estimate.known(0.1)), graph)).makespan_us
        for k in (2, 3, 4, 5, 100)
    ]
    assert spans == sorted(spans, reverse=True) and spans[-1] > 20


def test_no_accumulation_or_no_optimizer_is_refused():
    reason = GradientAccumulation(every=1).check(graph_of(*STEPS))
    assert reason == golden() and "1" in reason
    assert GradientAccumulation().check(graph_of("a gpu0 1")) == golden()

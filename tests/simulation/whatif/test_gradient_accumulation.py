"""The optimizer runs in every k-th step."""

from __future__ import annotations

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.gradient_accumulation import GradientAccumulation
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.simulation.story import graph_of

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


def test_parts_of_a_batch_neither_update_nor_talk():
    graph = graph_of(*STEPS)
    assert simulate(graph)["adam1"] == (73, 83)
    schedule = simulate(applied(GradientAccumulation(every=2, add_share=Estimate.known(0.3)), graph))
    assert schedule["back0"] == (3, 13) and schedule["lb1"] == (2, 4)
    assert schedule["back1"] == (13, 26)  # 3 us to add
    assert schedule["sum1"] == (26, 46) and schedule["adam1"] == (46, 56) and len(schedule) == 7


def test_too_few_steps_or_no_optimizer_are_refused():
    assert "the run has 2 steps" in GradientAccumulation(every=3).check(graph_of(*STEPS))
    assert "accumulates nothing" in GradientAccumulation(every=1).check(graph_of(*STEPS))
    assert "belongs to an optimizer" in GradientAccumulation().check(graph_of("a gpu0 1"))

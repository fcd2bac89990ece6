"""One task instead of all that an optimizer runs."""

from __future__ import annotations

import pytest

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.fused_adam import FusedAdam
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.support.golden import golden
from tests.support.task_stories import graph_of

CERTAIN = FusedAdam(moved_share=Estimate.known(0.5), floor_us=Estimate.known(1), python_us=Estimate.known(20))


def run(kernels: int = 4, name: str = "mul") -> tuple[str, ...]:
    """A backward kernel, gradients set to zero, and an update of kernels of 5 us, launched in 10."""
    update = [
        sentence
        for k in range(kernels)
        for sentence in (
            f"l{k} cpu 2 gap 8 phase optimizer step 0",
            f"{name}{k} gpu0 5 with l{k} + 3 phase optimizer step 0",
        )
    ]
    return (
        "lb cpu 2 phase backward step 0",
        "grad gpu0 9 with lb + 3 phase backward step 0",
        "lz cpu 2 phase optimizer step 0",
        "FillFunctor gpu0 1 with lz + 3 phase optimizer step 0",
        *update,
        "end cpu 0 kind marker step 0",
    )


def test_launches_shrink_to_one_and_each_tensor_moves_once():
    graph = graph_of(*run())
    assert simulate(graph)["end"] == (44, 44) and simulate(graph)["mul3"] == (45, 50)
    schedule = simulate(applied(CERTAIN, graph))
    assert schedule["FillFunctor"] == (12, 13)
    # 1 us and half of 4 x 4; its launch begins at 4, and Python takes 20 of it.
    assert (
        schedule["l3"] == (4, 26) and schedule["fused optimizer"] == (27, 36) and schedule["end"] == (26, 26)
    )


def test_python_never_takes_longer_than_what_it_replaces():
    slow = FusedAdam(moved_share=Estimate.known(1), floor_us=Estimate.known(0), python_us=Estimate.known(1e6))
    schedule = simulate(applied(slow, graph_of(*run())))
    assert schedule["l3"] == (4, 46) and schedule["fused optimizer"] == (47, 67)


@pytest.mark.parametrize("call", [0, 3])
def test_host_work_that_is_no_dispatch_stays(call: int):
    """Before one launch something else takes 20 ms, of which dispatch is 200 us at most."""
    paused = tuple(
        sentence.replace("gap 8", "gap 20_000") if sentence.startswith(f"l{call} ") else sentence
        for sentence in run()
    )
    start_us, _ = simulate(applied(CERTAIN, graph_of(*paused)))["fused optimizer"]
    assert start_us == pytest.approx(27 + 20_000 - 200)


def test_with_the_number_of_weights_the_memory_decides():
    known = FusedAdam(parameters=1e6, bytes_per_s=28e12 / 10, python_us=Estimate.known(0))
    assert simulate(applied(known, graph_of(*run())))["fused optimizer"] == (13, 23)


def test_every_step_has_its_own():
    graph = graph_of(*run(), *(line.replace("step 0", "step 1") for line in run()))
    fused = applied(CERTAIN, graph)
    assert sum(fused.name_of(task) == "fused optimizer" for task in fused) == 2


def test_operators_of_a_run_without_a_device_are_fused_as_well():
    graph = graph_of(
        "grad cpu 9 kind operator phase backward",
        *(f"aten::mul{k} cpu 5 gap 10 kind operator phase optimizer" for k in range(4)),
    )
    assert simulate(applied(CERTAIN, graph))["fused optimizer"] == (9, 38)  # 20 + 1 + 4 x 4 / 2


@pytest.mark.parametrize(
    ("sentences", "fact"),
    [(("a gpu0 1 phase forward",), ""), (run(4, "FusedAdam"), ""), (run(2), "2")],
    ids=["no optimizer", "fused already", "two tasks"],
)
def test_where_nothing_is_to_fuse_it_is_refused(sentences: tuple[str, ...], fact: str):
    reason = CERTAIN.check(graph_of(*sentences))
    assert reason == golden() and fact in reason


def test_weights_without_a_rate_are_refused():
    assert FusedAdam(parameters=1e6).check(graph_of(*run())) == golden()

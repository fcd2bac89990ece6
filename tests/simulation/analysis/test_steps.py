from __future__ import annotations

import dataclasses

import pytest

from daceml.simulation.analysis.steps import StepScale, recorded_step_times, step_error, step_kind, step_times
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from tests.support.task_stories import graph_of


def two_steps(first_kernel_us: float = 30) -> TaskGraph:
    graph = graph_of(
        "begin0 cpu 0 kind marker step 0 at 0",
        "launch0 cpu 5 step 0 at 0",
        "end0 cpu 0 gap 5 kind marker step 0 at 10",
        "begin1 cpu 0 kind marker step 1 at 10",
        "launch1 cpu 5 step 1 at 10",
        "end1 cpu 0 gap 5 kind marker step 1 at 20",
        f"kernel0 gpu0 {first_kernel_us} with launch0 + 2 step 0 at 2",
        "kernel1 gpu0 30 with launch1 + 2 step 1 at 32",
    )
    return dataclasses.replace(graph, step_names=("step 0", "step 1"))


def test_the_loop_may_be_ahead_of_the_device():
    times = step_times(simulate(two_steps()))
    assert times.names == ("step 0", "step 1")
    assert times.loop_us.tolist() == [10, 10]
    assert times.done_us.tolist() == [32, 62]
    assert times.step_us == 30


def test_a_step_takes_what_limits_it_in_the_long_run():
    assert step_times(simulate(two_steps(first_kernel_us=1))).step_us == 42 - 10


def test_the_error_of_a_replay_is_the_mean_over_its_steps():
    graph = two_steps()
    assert step_error(simulate(graph)) == 0
    slower = graph.with_times(gap_us=graph.tasks.gap_us + 1.0 * (graph.tasks.gap_us > 0))
    assert step_error(simulate(slower)) == pytest.approx(0.1)
    assert recorded_step_times(slower).loop_us.tolist() == [10, 10]


def test_a_run_without_steps_is_one():
    graph = graph_of("a cpu 5", "b cpu 7 gap 1")
    assert step_times(simulate(graph)).step_us == 13
    assert step_error(simulate(graph)) == 0


def sentences(first_us: float, second_us: float) -> list[str]:
    """Two steps whose kernels last so long, launched 100 us apart."""
    return [
        "l0 cpu 10 step 0", f"k0 gpu0 {first_us} with l0 step 0",
        "l1 cpu 10 gap 90 step 1", f"k1 gpu0 {second_us} with l1 step 1",
    ]  # fmt: skip


def test_a_changed_graph_is_never_slower_for_less_work():
    """The first step gains 60 us and the second one nothing: the time between their ends grows."""
    recorded, changed = (simulate(graph_of(*sentences(first, 50))) for first in (80, 20))
    scale = StepScale.of(recorded)
    assert (step_times(recorded).step_us, step_times(changed).step_us) == (70, 130)
    assert (scale.step_us(recorded), scale.step_us(changed)) == (70, 70)
    assert scale.step_us(simulate(graph_of(*sentences(80, 30)))) == pytest.approx(70 - 20 / (150 / 70))


def test_steps_that_are_done_all_at_once_take_their_mean():
    """The kernel of the first step outlasts the second step."""
    schedule = simulate(graph_of("l0 cpu 10 step 0", "k0 gpu0 300 with l0 step 0", "l1 cpu 10 step 1"))
    assert step_times(schedule).step_us == 150


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        ("ProfilerStep#3", ""),
        ("step[DECODE bs=32]", "decode"),
        ("step[EXTEND bs=15 toks=15360]", "prefill"),
        ("execute_context_2(64)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_30(30)", "decode"),
        ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)", "mixed"),
        ("execute_context_0(0)_generation_0(0)", ""),
        ("execute_diffusion_1_256x256", "diffusion"),
    ],
)
def test_marks_of_servers_tell_the_kind_of_a_step(mark: str, kind: str):
    assert step_kind(mark) == kind

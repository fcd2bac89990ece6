from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest

from daceml.errors import WhatIfError
from daceml.report.replay_text import whatif_warnings
from daceml.simulation.analysis.reliability import without_host
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.whatif.data_loader import DataLoaderWorkers
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.whatif_result import Refusal, predict, predict_each
from tests.simulation.whatif.training_runs import pair
from tests.support.golden import golden, raises
from tests.support.task_stories import graph_of


@dataclass(frozen=True, kw_only=True)
class FasterKernels(Optimization):
    option: ClassVar[str] = "faster"
    title: ClassVar[str] = "faster kernels"
    source: ClassVar[str] = "this test"
    speedup: Estimate = Estimate(2.0, fast=4.0, slow=1.0)
    name: str = "gemm"

    @property
    def family(self) -> str:  # those of other names change other kernels
        return self.name

    def check(self, graph: TaskGraph) -> str | None:
        return None if select(graph, name=self.name).any() else f"no kernel is called {self.name}"

    def apply(self, graph: TaskGraph) -> TaskGraph:
        return scale(graph, select(graph, name=self.name), 1 / self.speedup.likely)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return ("kernels can be faster",)


def run() -> TaskGraph:
    return graph_of("launch cpu 5 at 0", "gemm gpu0 80 with launch at 0", "add gpu0 20 at 80")


def test_an_answer_has_an_interval_assumptions_and_what_was_changed():
    seen = predict(run(), [FasterKernels()])
    assert (seen.baseline_us, seen.step_us, seen.fast_us, seen.slow_us) == (100, 60, 40, 100)
    assert seen.speedup == pytest.approx(100 / 60)
    assert seen.assumptions == ("kernels can be faster",)
    assert seen.change.headline() == golden() and "1" in seen.change.headline()
    assert "gemm" in str(seen.change)


def test_optimisations_are_applied_one_after_the_other():
    seen = predict(run(), [FasterKernels(), FasterKernels(name="add")])
    assert seen.step_us == 50
    assert seen.titles == ("faster kernels", "faster kernels")


def test_each_alone_then_all_together_and_what_is_refused_is_said():
    found, refused = predict_each(
        run(), [FasterKernels(), FasterKernels(name="conv"), FasterKernels(name="add")]
    )
    assert [seen.step_us for seen in found] == [60, 90, 50]
    assert [one.reason for one in refused] == ["no kernel is called conv"]


def test_where_the_only_question_is_refused_its_reason_is_the_error():
    with raises(WhatIfError, FasterKernels.title) as caught:
        predict_each(run(), [FasterKernels(name="conv")])
    assert caught.value.why == FasterKernels(name="conv").check(run())


def test_where_all_are_refused_the_error_has_the_reason_of_each():
    lacking = Refusal(title="--ddp", reason="no interconnect of the devices is given", code="DML615")
    asked = [FasterKernels(name="conv"), FasterKernels(name="pool")]
    with raises(WhatIfError, "none of the 3 questions") as caught:
        predict_each(run(), asked, lacking=[lacking])
    assert caught.value.why.splitlines() == [
        "--ddp [DML615]: no interconnect of the devices is given",
        *(f"{FasterKernels.title} [DML613]: {one.check(run())}" for one in asked),
    ]


@dataclass(frozen=True, kw_only=True)
class LosesWork(FasterKernels):
    """A rule with a fault: it forgets the work that it moves elsewhere."""

    def moved_us(self, graph: TaskGraph) -> float:
        return 90.0


def test_an_answer_that_breaks_a_law_is_refused_and_the_others_stand():
    found, refused = predict_each(run(), [LosesWork(), FasterKernels(name="add")])
    assert [seen.step_us for seen in found] == [90]
    assert [one.code for one in refused] == ["DML614"]
    assert refused[0].reason == golden() and "0.090 ms" in refused[0].reason


def test_steps_of_which_only_the_first_sends_still_take_time():
    """Nothing waits for the all-reduce of the first step, which ends after the second step has."""
    graph = graph_of(
        "l0 cpu 1 step 0 phase backward", "bw gpu0 20 with l0 step 0 phase backward",
        "l1 cpu 1 step 1 phase forward", "fw gpu0 20 with l1 step 1 phase forward",
    )  # fmt: skip
    seen = predict(graph, [DataParallel(topology=pair(), gradients=Gradients.of(1000.0))])
    assert seen.step_us > seen.baseline_us == 20
    assert seen.speedup < 2


def test_several_devices_of_a_run_that_hides_its_sums_behind_the_host_may_gain_less():
    """The all-reduces overlap with the host, whose time without the profiler is unknown."""
    graph = graph_of(
        *(
            sentence
            for step in range(2)
            for sentence in (
                f"l{step}a cpu 1 gap 1000 step {step} phase backward",
                f"bw{step} gpu0 20 with l{step}a step {step} phase backward",
                f"l{step}b cpu 1 gap 1000 step {step} phase optimizer",
                f"sgd{step} gpu0 10 with l{step}b step {step} phase optimizer",
            )
        )
    )
    seen = predict(graph, [DataParallel(topology=pair(), gradients=Gradients.of(50.0))])
    assert seen.host_limits and seen.speedup == pytest.approx(2)
    assert seen.speedup_low < 1.7 and seen.speedup_high <= 2


def host_bound(inflation: float = float("nan")) -> TaskGraph:
    """A step of 100 us whose device works for 20 us; the profiler recorded ten events for its two calls."""
    graph = graph_of(
        "launch cpu 10 step 0 at 0", "gemm gpu0 20 step 0 with launch at 0",
        "synchronize cpu 10 gap 80 step 0 after gemm at 90",
    )  # fmt: skip
    return dataclasses.replace(graph, host_events=10, inflation=inflation)


def test_where_the_host_limits_an_answer_reaches_from_its_device_to_the_recorded_host():
    seen = predict(host_bound(), [FasterKernels()])
    assert seen.host is not None
    assert (seen.host.device_us, seen.host.recorded_us) == (20, 100)
    assert (seen.step_us, seen.fast_us, seen.slow_us) == (80, 5, 100)  # events cost 2 us each
    assert seen.speedup == 1 and (seen.speedup_low, seen.speedup_high) == (1, 4)
    assert whatif_warnings([seen]) == [str(seen.host)] and str(seen.host) == golden()


@dataclass(frozen=True, kw_only=True)
class FreeHost(FasterKernels):
    """Threads that take no time."""

    def apply(self, graph: TaskGraph) -> TaskGraph:
        return without_host(graph)


def test_an_answer_that_frees_a_run_of_its_host_gains_between_nothing_and_what_was_recorded():
    """How many of the recorded 100 us the profiler took is unknown."""
    seen = predict(host_bound(), [FreeHost()])
    assert (seen.step_us, seen.speedup) == (20, 4)
    assert (seen.speedup_low, seen.speedup_high) == (1, 5)


def test_what_the_profiler_was_measured_to_cost_counts_instead_of_what_is_usual():
    assert predict(host_bound(inflation=1.0), [FasterKernels()]).step_us == 100


def test_a_run_that_its_device_limits_says_nothing_of_the_host():
    seen = predict(run(), [FasterKernels()])
    assert seen.host is None and not seen.host_limits and not whatif_warnings([seen])


def test_a_replay_that_misses_the_run_is_the_first_warning():
    """The second call was recorded to begin after 75 us; nothing in the graph says why."""
    graph = graph_of("launch cpu 5 step 0 at 0", "gemm cpu 5 step 0 at 75")
    first, *_ = whatif_warnings([predict(graph, [FasterKernels()])])
    assert first == golden() and "87.5%" in first


def test_loaders_serve_what_the_other_questions_leave_of_the_step():
    """Alone one worker keeps up with 100 us; once kernels are twice as fast, it does not."""
    graph = graph_of(
        "begin cpu 0 kind marker step 0", "load cpu 70 kind data phase data step 0", "launch cpu 1 step 0",
        "gemm gpu0 100 with launch step 0", "wait cpu 0 after gemm step 0", "end cpu 0 kind marker step 0",
    )  # fmt: skip
    loader = DataLoaderWorkers(workers=1, fetch_us=Estimate.known(0), slowdown=Estimate.known(1))
    for asked in ([loader, FasterKernels()], [FasterKernels(), loader]):
        assert predict(graph, asked).step_us == 70
